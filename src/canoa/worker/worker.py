"""A worker: takes deliveries, runs them in lanes, and leaves in good order.

Never connected and deaf: a consumer recovers by itself, or `wait_failed` says why it cannot and the process ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from canoa import telemetry
from canoa.action import IN_PROCESS
from canoa.broker import topology
from canoa.broker.opening import open_within
from canoa.broker.port import Declaration, Delivery
from canoa.errors import CanoaError, WrongUse
from canoa.execution import limits
from canoa.execution.prefetch import prefetch_for, prefetch_under_rate
from canoa.logs import get_logger
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.worker.callers import Callers
from canoa.worker.cancelled import CancelledTasks
from canoa.worker.driving import Interruption
from canoa.worker.gate import HOLD_S, Gate, Permit
from canoa.worker.health_page import health_page
from canoa.worker.identity import Identity
from canoa.worker.joining import Joined
from canoa.worker.journal import Journal
from canoa.worker.lane import Lane
from canoa.worker.metrics import ActionStats, WorkerCollector, exposition, new_registry
from canoa.worker.offer import Offer
from canoa.worker.pooled import PoolOffer
from canoa.worker.progress import ProgressTeller
from canoa.worker.routed import RoutedDelivery
from canoa.worker.running import Runner, processors
from canoa.worker.settling import Settler
from canoa.worker.sharing import SharedLimits
from canoa.worker.suspects import Suspects
from canoa.worker.uplinks.address import http_address
from canoa.worker.uplinks.opening import new_uplinks, ways

if TYPE_CHECKING:
    from canoa.app import Canoa
    from canoa.broker.port import Broker, Consumer
    from canoa.worker.routed import RoutedOffer
    from canoa.worker.settings import WorkerSettings

log = get_logger(__name__)

Job: TypeAlias = tuple[Offer, Delivery, Permit | None]

TUNE_EVERY_S = 0.2
LET_GO_EVERY_S = 5.0

CONSUMER_TIMEOUT_S = 1800.0
"""RabbitMQ's own limit, unless its operator raised it, for how long a delivery may stay unacknowledged."""

INTERRUPT_WITHIN_S = 5.0
"""How long interrupted attempts may take to tidy up before their deliveries are left to the broker."""

STOP_LISTENING_WITHIN_S = 2.0


class Worker:
    def __init__(self, app: Canoa, settings: WorkerSettings) -> None:
        if not app.actions:
            raise WrongUse(f"app {app.name!r} has no actions; define one with @{app.name}.action()")
        self.settings = settings
        self.node_id = NodeId(settings.node_id or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}")
        self.started_s = time.time()
        self._app = app
        self._broker: Broker = app.new_broker("worker")
        self._settler = Settler(self._broker)
        self._callers = Callers(self._broker, self._settler)
        self._cancelled = CancelledTasks()
        processes = settings.processes or processors()
        self._runner = Runner(
            node_id=self.node_id,
            threads=settings.concurrency,
            processes=processes,
            cancelled=self._cancelled,
            progress=ProgressTeller(self._broker, self.node_id),
            is_memory=app.settings.is_memory,
            journal=Journal(Path(settings.journal)) if settings.journal else None,
        )
        self._limits = SharedLimits(app)
        self._gate: Gate  # from the start on, like the next
        self._suspects: Suspects
        self._main: Lane[Job] = Lane("main", settings.concurrency, self._run)
        self._cpu: Lane[Job] = Lane("cpu", processes, self._run)
        self._offers = [self._offer(action) for action in app.actions.values()]
        with ExitStack() as undo:  # what is open by then, should the next not come about
            undo.callback(self._runner.close)
            self._address = http_address(settings) if settings.join and settings.http else None
            if self._address is not None:
                undo.callback(self._address.listener.close)
            self._joined = self._new_joined() if settings.join else None
            undo.pop_all()
        self._cancels: Consumer | None = None
        self._look_again_s = 0.0  # by the loop's clock
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self.stats: dict[ActionName, ActionStats] = {offer.name: offer.stats for offer in self._offers}
        self.registry = new_registry(WorkerCollector(self.stats, settings.layer, node=self._joined))

    def _offer(self, action: Any) -> PoolOffer:
        return PoolOffer(
            action,
            self._settler,
            self._callers,
            node_id=self.node_id,
            max_payload_bytes=self._app.settings.max_payload_bytes,
            layer=self.settings.layer,
            compression=self._app.settings.compression(),
        )

    def _new_joined(self) -> Joined:
        settings = self.settings
        identity = Identity(
            node_id=self.node_id,
            is_made_up=not settings.node_id,
            layer=settings.layer,
            site=settings.site,
            labels=settings.labels,
            grace_s=settings.grace_s,
            policies={offer.name: offer.policy for offer in self._offers},
            endpoint=self._address.endpoint if self._address is not None else "",
            ways=ways(self._address, settings, is_memory=self._app.settings.is_memory),
            link_budget=settings.link_budget,
        )
        return Joined(
            self._broker,
            self._settler,
            self._offers,
            identity,
            concurrency=sum(lane.concurrency for lane in {self._lane_of(offer) for offer in self._offers}),
            in_progress=lambda: self.in_progress,
            compression=self._app.settings.compression(),
            page=health_page(settings.managers[0]) if settings.managers and not settings.http else None,
            new_uplinks=lambda node: new_uplinks(node, self._address, settings, self._app.settings),
            has_broker=not self._app.settings.is_memory,
            quiet_s=settings.prove_after_s,
            outbox=settings.new_outbox(),
            always_keep=settings.outbox_always,
        )

    def metrics(self) -> bytes:
        """In Prometheus' text format."""
        return exposition(self.registry)

    @property
    def in_progress(self) -> int:
        return self._main.running + self._cpu.running

    # --- Starting ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return once every action can be called. Raises what the broker refuses, `NodeIdTaken`, and `SettingError` for
        limits over all workers that there is no store for."""
        telemetry.look()
        async with AsyncExitStack() as undo:
            undo.callback(self._runner.close)
            if self._joined is not None:
                undo.push_async_callback(self._joined.close_outbox)
            undo.push_async_callback(self._broker.aclose)
            if self._joined is not None:
                undo.push_async_callback(self._joined.close_uplinks)
            undo.push_async_callback(self._limits.aclose)
            shared = await self._limits.open()
            self._gate = Gate(self._runner, self.node_id, shared=shared, room=self.settings.concurrency)
            lanes = (self._main, self._cpu)
            self._suspects = Suspects(self._runner, self._settler, self._gate, lanes, spawn=self._spawn)
            await open_within(self._broker, self.settings.link_within_s)
            await self._broker.declare(*topology.shared())
            if self._joined is not None:
                await self._joined.node.wait_free()
                await self._joined.open_outbox()
            for offer in self._offers:
                await self._consume(offer)
            await self._listen_for_cancels()
            if self._joined is not None:
                await self._joined.start(self._on_routed)
            undo.pop_all()
        self._spawn(self._tune(), "tune")
        for offer in self._offers:
            for consumer in offer.consumers:
                self._spawn(consumer.wait_ended(), f"watch[{consumer.queue}]")
        for duty in self._joined.duties() if self._joined is not None else ():
            self._spawn(duty, "node")
        for offer in self._offers:
            limit_s = offer.policy.timeout_s
            if not self._app.settings.is_memory and limit_s is not None and limit_s > CONSUMER_TIMEOUT_S:
                log.warning("timeout_over_consumer_timeout", action=offer.name, timeout_s=limit_s)
        log.info("worker_ready", node_id=self.node_id, actions=list(self.stats), concurrency=self.settings.concurrency)

    async def _consume(self, offer: PoolOffer) -> None:
        action = offer.action
        lane = self._lane_of(offer)
        offer.prefetch = self._prefetch_of(offer)
        declared = topology.of_action(action.name, quorum=action.quorum, max_priority=action.priorities)
        ours: list[Declaration] = [*topology.shared(), *declared]
        push = partial(self._on_delivery, offer, lane)
        on_suspect = partial(self._suspects.take, offer)
        offer.consumers = [
            await self._broker.consume(offer.queue, push, prefetch=offer.prefetch, topology=ours),
            await self._broker.consume(offer.suspect_queue, on_suspect, prefetch=1, topology=ours),
        ]

    def _prefetch_of(self, offer: PoolOffer) -> int:
        current = offer.prefetch or None
        normal = prefetch_for(self._lane_of(offer).concurrency, offer.estimate, current)
        if (rate := offer.policy.rate) is None:
            return normal
        ahead = limits.held_ahead(rate.per_ms, rate.burst)
        return prefetch_under_rate(normal, current, ahead=ahead, in_progress=offer.stats.in_progress)

    def _lane_of(self, offer: Offer) -> Lane[Job]:
        return self._cpu if offer.action.runs is IN_PROCESS else self._main

    async def _listen_for_cancels(self) -> None:
        queue, binding = topology.cancel_queue(self.node_id)
        shared = topology.shared()
        self._cancels = await self._broker.consume(
            queue.name, self._on_cancel, prefetch=100, topology=[*shared, queue, binding]
        )
        self._spawn(self._cancels.wait_ended(), "watch[cancel]")

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"worker[{self.node_id}].{name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: asyncio.Task[Any]) -> None:
        """None of them may end with an error: a worker that lost one of them must say so and end."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            log.error("worker_cannot_receive", node_id=self.node_id, reason=str(error))
            self._failed.set_exception(error)
            self._failed.exception()  # seen: `wait_failed` may never be awaited

    # --- Working ------------------------------------------------------------------------------------

    def _on_delivery(self, offer: Offer, lane: Lane[Job], delivery: Delivery) -> None:
        self._settler.took()
        if self._is_stopping:
            offer.hand_back(delivery)
        elif offer.is_limited:
            self._gate.enter(offer, delivery, partial(self._on_admitted, offer, lane, delivery))
        else:
            lane.push((offer, delivery, None), delivery.message.priority)

    def _on_routed(self, offer: RoutedOffer, delivery: RoutedDelivery) -> None:
        if offer.is_known(delivery):  # comes again, and is no sign of a crash
            self._settler.took()
            offer.absorb(delivery)
        elif delivery.is_suspect:
            self._suspects.take(offer, delivery)
        elif delivery.redelivered and not self._is_stopping:
            # It never runs as it is, but is counted first; at once, since its bundle is not acknowledged before.
            self._settler.took()
            self._runner.look(offer, delivery)
        else:
            self._on_delivery(offer, self._lane_of(offer), delivery)

    def _on_admitted(self, offer: Offer, lane: Lane[Job], delivery: Delivery, permit: Permit) -> None:
        if self._is_stopping:
            _hand_back(offer, delivery, permit)
        else:
            lane.push((offer, delivery, permit), delivery.message.priority)

    async def _run(self, job: Job) -> None:
        offer, delivery, permit = job
        try:
            if delivery.is_settled:  # its link is gone: the broker has given it to somebody else
                self._settler.dropped()
            else:
                await self._runner.handle(offer, delivery)
        except Exception:  # a bug of ours: the task goes back and is counted, so that it cannot come for ever
            log.exception("delivery_not_handled", action=offer.name, message_id=delivery.message.message_id)
            offer.requeue(delivery)
        finally:
            if permit is not None:
                permit.release()

    def _on_cancel(self, delivery: Delivery) -> None:
        delivery.settle()
        task_id = self._cancelled.hear(delivery.message.body)
        if task_id is not None:
            self._runner.interrupt(self._runs_as(task_id), Interruption.CANCELLED)

    def _runs_as(self, task_id: TaskId) -> TaskId:
        return task_id if self._joined is None else TaskId(self._joined.runs_as(task_id))

    async def _tune(self) -> None:
        """Prefetch follows run time: fast actions hide round trips, slow ones leave work to others."""
        while True:
            await asyncio.sleep(TUNE_EVERY_S)
            for offer in self._offers:
                wanted = self._prefetch_of(offer)
                if wanted != offer.prefetch:
                    offer.prefetch = wanted
                    await offer.consumers[0].set_prefetch(wanted)
            if self._joined is not None:
                await self._joined.tune()
                self._let_go()

    def _let_go(self) -> None:
        """What cannot start for long comes again by itself: its bundle must not stay unacknowledged for so long."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._look_again_s:
            return
        self._look_again_s = now_s + LET_GO_EVERY_S
        for lane in (self._main, self._cpu):
            for offer, delivery, permit in lane.take_waiting(partial(_is_held, now_s)):
                if delivery.is_settled:  # its link is gone: the broker gives its bundle to somebody again
                    self._settler.dropped()
                else:
                    offer.wait(delivery, 0.0)
                if permit is not None:
                    permit.release()

    # --- Ending -------------------------------------------------------------------------------------

    async def wait_failed(self) -> None:
        """Never returns; raises why the worker can no longer receive work."""
        await asyncio.shield(self._failed)

    async def stop(self) -> bool:
        """Take nothing new, hand back what has not started, let the rest finish within `drain_s`, then interrupt it and
        hand it back too. True: nothing had to be interrupted."""
        if self._is_stopping:
            return True
        self._is_stopping = True
        self._suspects.stop()
        log.info("worker_draining", node_id=self.node_id, in_progress=self.in_progress)
        for lane in (self._main, self._cpu):
            lane.hold()  # what waits must not start in the place of what ends while we leave
        if self._joined is not None:
            await self._joined.leave()
        for offer in self._offers:
            for consumer in offer.consumers:
                await consumer.cancel()
        self._gate.stop()
        for lane in (self._main, self._cpu):
            for unstarted in lane.take_unstarted():
                _hand_back(*unstarted)
        is_clean = await self._drain()
        if self._joined is not None:
            await self._joined.node.take_the_rest()
            await self._emptied_within(INTERRUPT_WITHIN_S)
        await self._main.stop()
        await self._cpu.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._runner.close()
        await self._gate.aclose()
        await self._limits.aclose()
        await self._stop_listening()
        if self._joined is not None:
            await self._joined.aclose()
        await self._broker.aclose()
        if self._joined is not None:  # after the broker: what it had not sent is kept
            await self._joined.close_outbox()
        log.info("worker_stopped", node_id=self.node_id, clean=is_clean)
        return is_clean

    async def _stop_listening(self) -> None:
        """Take the queue of our own along; without a link it expires by itself."""
        if self._cancels is not None:
            with suppress(CanoaError, TimeoutError):
                async with asyncio.timeout(STOP_LISTENING_WITHIN_S):
                    await self._cancels.cancel()
                    await self._broker.delete_queue(self._cancels.queue)

    async def _drain(self) -> bool:
        if await self._emptied_within(self.settings.drain_s):
            return True
        log.warning("drain_interrupts", node_id=self.node_id, in_progress=self.in_progress)
        self._runner.interrupt_all(Interruption.DRAINED)
        await self._emptied_within(INTERRUPT_WITHIN_S)
        return False

    async def _emptied_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._settler.wait_empty()
        except TimeoutError:
            return False
        return True


def _is_held(now_s: float, job: Job) -> bool:
    """In a bundle, for too long."""
    _, delivery, _ = job
    return isinstance(delivery, RoutedDelivery) and delivery.held_s(now_s) > HOLD_S


def _hand_back(offer: Offer, delivery: Delivery, permit: Permit | None) -> None:
    offer.hand_back(delivery)
    if permit is not None:
        permit.release()
