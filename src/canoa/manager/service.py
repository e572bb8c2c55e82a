"""A manager: knows the nodes, runs tasks over them, owns nothing. Any number may run side by side, and any may die.

Two halves: what it knows of nodes and does for them (`nodes.py`), and its work on tasks (`dispatch.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.broker import topology
from canoa.broker.mqtt_address import MqttAddress
from canoa.clock import now_ms
from canoa.errors import CanoaError
from canoa.execution.step_settings import StepSettings
from canoa.logs import get_logger
from canoa.manager import mqtt_finals
from canoa.manager.dispatch import Dispatch
from canoa.manager.doors import Doors
from canoa.manager.marking import Mark
from canoa.manager.metrics import Figures, ManagerCollector, new_registry
from canoa.manager.node_settings import NodeSettings
from canoa.manager.nodes import Nodes
from canoa.manager.registering import left
from canoa.vocabulary import MQTT_LINK
from canoa.wire.ids import new_client_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from canoa.broker.events import Events
    from canoa.broker.port import Broker, Consumer, Declaration, Message, OnDelivery
    from canoa.execution.explaining import Explained
    from canoa.execution.health import BreakerSettings
    from canoa.execution.link_budget import LinkUse
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import Need, Verdict
    from canoa.store.port import Accepted
    from canoa.store.routed_port import FullStore, NodeRow
    from canoa.transports.mqtt import MqttTransport
    from canoa.vocabulary import ActionName, NodeId, TaskId
    from canoa.wire.sapparchi import RegistrationAck

log = get_logger(__name__)

PREFETCH: Final = 1000
"""Enough for a group to be written while the next one comes."""

BUNDLES: Final = 32
"""Of answers to what it sent itself, likewise: as many as are open at once. What is more, other managers may have."""

LOOK_AGAIN_S: Final = 0.02


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    nodes: NodeSettings = NodeSettings()
    steps: StepSettings = StepSettings()
    limit_bytes: int = 1024 * 1024  # of a task's input and of a step's result, unpacked
    mqtt: MqttAddress | None = None  # of a broker that devices use and that speaks nothing else


class Manager:
    """On a broker and a store that are open; it closes neither."""

    def __init__(
        self, broker: Broker, store: FullStore, *, events: Events, is_memory: bool, settings: ManagerSettings
    ) -> None:
        self._id = new_client_id()
        self.store = store
        self._broker = broker
        self._is_memory = is_memory
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.nodes = Nodes(broker, store, manager_id=self._id, lose=self._lose, settings=settings.nodes, events=events)
        self._dispatch = Dispatch(
            broker,
            store,
            self.nodes.router,
            events=events,
            on_moved=self.nodes.on_moved,
            reaching=self.nodes.reaching,
            links=self.nodes.links,
            owner=self._id,
            steps=settings.steps,
            limit_bytes=settings.limit_bytes,
            on_canary=self.nodes.canaries.heard_by_the_way,
        )
        self._doors = Doors(
            self.nodes.catalogue,
            on_registration=self.nodes.registrations.on_delivery,
            on_result=self._dispatch.answers.on_delivery,
            look_up=self.nodes.caller.look_up,
        )
        self._mqtt = self._new_mqtt(settings.mqtt) if settings.mqtt is not None else None
        self._mark = Mark(broker, is_leading=lambda: self.nodes.heart.is_leading, send_again=self._dispatch.send_again)
        self.figures = Figures(
            self._dispatch.stats,
            self._dispatch.sender,
            store.writes,
            self.nodes.catalogue,
            self.nodes.registrations,
            self.nodes.canaries,
            self.nodes.links,
            self.nodes.caller,
        )
        self.collector = ManagerCollector(self.figures)
        self.registry = new_registry(self.collector)
        self._consumers: list[Consumer] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] = self._loop.create_future()

    def _new_mqtt(self, address: MqttAddress) -> MqttTransport:
        """Devices on a broker of their own take part like all others."""
        from canoa.transports.mqtt import MqttTransport  # when it is used: it needs an extra

        mqtt = MqttTransport(
            address,
            manager_id=self._id,
            is_leading=lambda: self.nodes.heart.is_leading,
            on_registration=self.nodes.registrations.on_delivery,
            on_result=self._dispatch.answers.on_delivery,
            on_request=self._dispatch.intake.on_delivery,
        )
        self.nodes.reaching.speak(MQTT_LINK, mqtt)
        self.nodes.heart.tell_others = mqtt.tell
        self.nodes.registrations.acks.tell_others = mqtt.tell
        return mqtt

    # --- Its life -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return once it takes registrations, requests and results."""
        declared = [*topology.shared(), *topology.manager()]
        await self._broker.declare(*declared)
        with suppress(CanoaError):  # a disk that is full: the timers try again
            await self._dispatch.timers.restore()
        if self._is_memory:
            await self._forget_nodes()
        await self.nodes.open()
        if self._is_memory:
            await self._send_again()
        else:
            await self._mark.look()  # before anything is sent that would look as if it came before the restart
        answers = self._dispatch.answers.on_delivery
        own_answers = topology.answers_queue(self._id)
        await self._consume(own_answers.name, answers, [own_answers], prefetch=BUNDLES)
        if self._mqtt is not None:  # before anything can end
            telling = mqtt_finals.MqttFinals(self._mqtt)
            queue, bound = topology.MQTT_FINALS, topology.mqtt_finals()
            await self._consume(queue, telling.on_delivery, bound, prefetch=mqtt_finals.PREFETCH)
        await self._consume(topology.TASK_REQUESTS, self._dispatch.intake.on_delivery, declared)
        await self._consume(topology.STEP_RESULTS, answers, declared)
        of_mqtt = {} if self._mqtt is None else self._mqtt.loops()
        for name, work in (self.nodes.loops() | self._dispatch.loops() | of_mqtt).items():
            self._spawn(work, name)
        if not self._is_memory:
            self._spawn(self._mark.run(), "mark")

    async def _consume(
        self, queue: str, on_delivery: OnDelivery, declared: Sequence[Declaration], *, prefetch: int = PREFETCH
    ) -> None:
        consumer = await self._broker.consume(queue, on_delivery, prefetch=prefetch, topology=declared)
        self._consumers.append(consumer)
        self._spawn(consumer.wait_ended(), f"watch[{queue}]")

    async def _forget_nodes(self) -> None:
        """They went with the broker; those that are there register again."""
        at_ms = now_ms()
        there = [left(row, at_ms) for row in await self.store.nodes() if row.actions]
        if there:
            await self.store.put_nodes(there)

    async def _send_again(self) -> None:
        """The broker has forgotten what was sent."""
        count = await self._dispatch.send_again("the broker was started anew")
        if count:
            log.info("steps_sent_anew", steps=count)

    async def wait_failed(self) -> None:
        """Never returns; raises why it can no longer manage."""
        await asyncio.shield(self._failed)

    @property
    def trouble(self) -> str | None:
        """Why it cannot work just now; None: it can."""
        if self._failed.done():
            return str(self._failed.exception())
        return self._dispatch.stats.trouble

    async def stop(self) -> None:
        """Take nothing new; what is in hand is written, or left to the broker and to other managers."""
        for consumer in self._consumers:
            with suppress(CanoaError):
                await consumer.cancel()
        await self._dispatch.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.nodes.aclose()

    async def wait_known(self, actions: Iterable[ActionName], *, within_s: float) -> bool:
        """Whether nodes offer all of these; registering takes them a moment."""
        wanted = frozenset(actions)
        return await self._waited(lambda: wanted <= self.nodes.catalogue.known_actions, within_s)

    async def wait_joined(self, node_id: NodeId, *, within_s: float) -> bool:
        """Whether it has registered, with what it offers."""
        rows = self.nodes.catalogue.rows
        return await self._waited(lambda: node_id in rows and bool(rows[node_id].actions), within_s)

    async def _waited(self, is_so: Callable[[], bool], within_s: float) -> bool:
        give_up_s = self._loop.time() + within_s
        while not is_so():
            if self._loop.time() >= give_up_s:
                return False
            await asyncio.sleep(LOOK_AGAIN_S)
        return True

    # --- For the desk ---------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Another one with every start."""
        return self._id

    @property
    def breaker_settings(self) -> BreakerSettings:
        return self._settings.nodes.breaker

    @property
    def silent_after_s(self) -> float:
        return self._settings.nodes.silence_s

    @property
    def node_inbox(self) -> int:
        return self._settings.nodes.inbox

    def unoffered(self, actions: Iterable[ActionName]) -> list[ActionName]:
        """Those that no node ever offered."""
        return [each for each in actions if not self.nodes.router.is_known(each)]

    def link_use(self, row: NodeRow) -> LinkUse:
        """What travelled to and from a node since this manager started."""
        return self.nodes.links.use(row)

    def endpoint_refusal(self, row: NodeRow) -> str:
        """Why its endpoint is not called; empty: it may be, or it has none."""
        return self.nodes.endpoint_refusal(row)

    def way(self, row: NodeRow) -> str:
        """By which a node would be sent a message now; empty: by none."""
        return self.nodes.reaching.way(row)

    async def accept(self, requests: Sequence[Message]) -> list[Accepted]:
        """Requests as they come on `topology.TASK_REQUESTS`: stored when it returns, all of them or none. Raises what
        is wrong with them before anything is stored."""
        return await self._dispatch.intake.accept(requests)

    async def registered(self, name: str) -> Plan:
        """The plan of that name. Raises `UnknownPlan`."""
        return await self._dispatch.intake.registered(name)

    async def put_plan(self, plan: Plan) -> bool:
        """Register it under its name; False: it was, exactly so."""
        is_new = await self.store.put_plan(plan, now_ms=now_ms())
        if is_new:
            self.nodes.telling.on_plan(plan.name)
        return is_new

    async def cancel(self, task_id: TaskId) -> Verdict:
        """End it, unless it has ended, and tell the nodes."""
        return await self._dispatch.cancel(task_id)

    async def rerun(self, task_id: TaskId) -> Verdict:
        """Run the steps again that did not succeed; `LATE` for a task that has not ended, or ended well."""
        return await self._dispatch.rerun(task_id)

    async def register(self, message: Message) -> RegistrationAck:
        """A node's registration that came by no queue; written when it returns. Raises what is wrong with it."""
        return await self._doors.register(message)

    async def take_result(self, message: Message) -> None:
        """A node's answer, likewise."""
        await self._doors.take_result(message)

    def explain(self, need: Need) -> Explained:
        """Where an attempt would go now, and why. Raises `UnknownAction`."""
        return self.nodes.explain(need)

    # --- Inside ---------------------------------------------------------------------------------------------

    async def _lose(self, node_id: NodeId, why: str) -> None:
        await self._dispatch.lose(node_id, why)

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = self._loop.create_task(work, name=f"manager.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: asyncio.Task[Any]) -> None:
        """None of them may end with an error: a manager that lost one of them must say so and end."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            log.error("manager_cannot_manage", reason=str(error))
            self._failed.set_exception(error)
            self._failed.exception()  # seen: `wait_failed` may never be awaited


@asynccontextmanager
async def managing(
    broker: Broker, store: FullStore, *, events: Events, is_memory: bool, settings: ManagerSettings | None = None
) -> AsyncIterator[Manager]:
    """Ready inside, stopped at the end. `events`: of the recorder beside it."""
    manager = Manager(broker, store, events=events, is_memory=is_memory, settings=settings or ManagerSettings())
    try:
        await manager.start()
        yield manager
    finally:
        await manager.stop()
