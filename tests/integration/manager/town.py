"""Managers on one broker and one store, with a bare node that speaks the published wire."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.contract.store.routed_words import begin
from tests.unit.manager.words import RESIZE, registration

from canoa.broker import topology
from canoa.broker.events import Events
from canoa.broker.port import Binding, Publication, Queue
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import CancelTask, Verdict
from canoa.manager.nodes import Nodes
from canoa.vocabulary import TaskId
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Consumer, Delivery, Message
    from canoa.manager.node_settings import NodeSettings
    from canoa.store.routed_port import FullStore, Moved, NodeRow
    from canoa.vocabulary import NodeId

WITHIN_S = 20.0


class Town:
    def __init__(self, new_broker: Callable[[], Broker], store: FullStore, *, name: str = "town") -> None:
        self._new_broker = new_broker
        self._name = name
        self.store = store
        self.broker = new_broker()
        self.managers: list[Nodes] = []
        self.lost: list[tuple[NodeId, str]] = []
        self.heard: dict[str, list[dict[str, Any]]] = {topology.NODES_ACK: [], topology.MANAGER_AVAILABLE: []}
        self._brokers = [self.broker]
        self.events: list[Events] = []
        self.onlookers: list[list[Event]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._loops: dict[int, list[asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Town:
        await self.broker.open()
        queue = Queue(name=self._name, expires_s=60)
        keys = [Binding(exchange=topology.AMQ_TOPIC, queue=queue.name, key=key) for key in self.heard]
        await self.broker.consume(queue.name, self._on_delivery, prefetch=1000, topology=[queue, *keys])
        return self

    async def __aexit__(self, *_: object) -> None:
        for manager in list(self.managers):
            await self.stop(manager)
        for events in self.events:
            events.stop()
        for listening in self._listening:
            listening.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for broker in self._brokers:
            await broker.aclose()

    def _on_delivery(self, delivery: Delivery) -> None:
        self.heard[delivery.key].append(json.loads(delivery.message.body))
        delivery.settle()
        self._changed.set()

    # --- Managers ---------------------------------------------------------------------------------------

    async def start_manager(
        self, settings: NodeSettings | None = None, *, broker: Broker | None = None, tells: bool = False
    ) -> Nodes:
        """`tells`: the town's `onlookers` hear what it tells, and all others hear."""
        broker = broker or self._new_broker()
        self._brokers.append(broker)
        await broker.open()
        name = f"{self._name}-manager-{len(self._brokers)}"
        events = await self._events(broker) if tells else None
        manager = Nodes(broker, self.store, manager_id=name, lose=self._lose, settings=settings, events=events)
        await manager.open()
        self._loops[id(manager)] = [asyncio.create_task(work, name=name) for name, work in manager.loops().items()]
        self.managers.append(manager)
        return manager

    async def _events(self, broker: Broker) -> Events:
        await broker.declare(*topology.shared())
        events, heard = Events(broker, is_shared=True, on_progress=lambda _: None), list[Event]()
        await events.consume()

        async def listen() -> None:
            async for event in events.listen():
                heard.append(event)
                self._changed.set()

        self._listening.append(asyncio.create_task(listen(), name="onlooker"))
        self.events.append(events)
        self.onlookers.append(heard)
        return events

    async def stop(self, manager: Nodes) -> None:
        await self.kill(manager)
        await manager.aclose()

    async def kill(self, manager: Nodes) -> None:
        """It beats and looks no more, and says nothing."""
        self.managers.remove(manager)
        for loop in self._loops[id(manager)]:
            loop.cancel()
            with suppress(asyncio.CancelledError):
                await loop

    async def close_brokers_of_managers(self) -> None:
        """What they took and did not settle goes back."""
        for broker in self._brokers[1:]:
            await broker.aclose()

    async def _lose(self, node_id: NodeId, why: str) -> None:
        self.lost.append((node_id, why))
        self._changed.set()

    # --- Nodes ------------------------------------------------------------------------------------------

    async def listen(self, name: str, *, exclusive: bool = False) -> Consumer:
        """As a worker does before it registers: on a connection of its own."""
        declared = (
            [Queue(name=topology.node_queue_name(name), exclusive=True)] if exclusive else topology.node_queue(name)
        )
        broker = self._new_broker()
        self._brokers.append(broker)
        await broker.open()
        queue = topology.node_queue_name(name)
        return await broker.consume(queue, lambda delivery: None, prefetch=10, topology=declared)

    async def register(self, name: str = "gw-7", *, instance: str = "", **said: Any) -> None:
        await self.publish(registration(name, instance=instance, **said))

    async def send_step(self, manager: Nodes) -> None:
        """A task of one step; the router knows one node for it."""
        plan = Plan(name=RESIZE, steps=(Step(name="resize", action=RESIZE),))
        at_ms = manager.catalogue.now_ms()
        moved = await self.store.advance([begin("task", plan, at_ms=at_ms)], manager.router)
        assert moved[0].verdict is Verdict.TAKEN
        assert list(await self.store.queued_for()) == ["gw-7"]

    async def publish(self, *messages: Message) -> None:
        outcomes = await self.broker.publish_many(
            [
                Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER, mandatory=False)
                for message in messages
            ]
        )
        assert set(outcomes) <= {None}

    def acks(self, name: str = "gw-7") -> list[dict[str, Any]]:
        return [ack for ack in self.heard[topology.NODES_ACK] if ack["nodeId"] == name]

    async def until(self, holds: Callable[[], object], *, within_s: float = WITHIN_S) -> None:
        """Whatever the town hears wakes it; what is only in a copy or the store is looked at now and then."""
        async with asyncio.timeout(within_s):
            while not holds():
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await self._changed.wait()

    async def row(self, name: str = "gw-7") -> NodeRow | None:
        return next((row for row in await self.store.nodes() if row.node_id == name), None)


def tell(manager: Nodes, moved: Moved) -> None:
    """A manager that a move was written."""
    manager.health.on_moved([(CancelTask(task_id=TaskId("any"), now_ms=manager.catalogue.now_ms()), moved)])
