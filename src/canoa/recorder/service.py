"""A recorder: takes tasks to keep, writes down how they end, and keeps dead letters. Any number may run side by side.

Every delivery is acknowledged after what it says is on disk and told: a recorder may be killed at any time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from canoa.broker import topology
from canoa.broker.events import Events
from canoa.clock import as_time, now_ms
from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.recorder import reading
from canoa.recorder.accepting import Acceptor
from canoa.recorder.ending import Ending
from canoa.recorder.metrics import RecorderStats
from canoa.recorder.outbox import Outbox
from canoa.recorder.progress import ProgressWriter
from canoa.recorder.refusing import Refusals
from canoa.repeating import REPEAT_AFTER_S, is_lasting
from canoa.store.grouping import GroupWriter
from canoa.store.port import Retention
from canoa.wire.event import Event
from canoa.wire.ids import new_client_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from canoa.broker.port import Broker, Consumer, Delivery
    from canoa.store.port import Answer, Bury, Store

log = get_logger(__name__)

PREFETCH: Final = 1000
"""Enough for a group to be written while the next one comes."""

PUBLISH_TIMEOUT_S: Final = 30.0
"""As long as `submit_timeout_s` is by itself."""

FORGET_EVERY_S: Final = 60.0
FORGET_ROWS: Final = 1000


class Recorder:
    """On a broker and a store that are open; it closes neither."""

    def __init__(
        self, broker: Broker, store: Store, *, is_memory: bool, retention: Retention, publish_timeout_s: float
    ) -> None:
        self.stats = RecorderStats()
        self.store = store
        self.writer = GroupWriter(store)
        self._owner = new_client_id()
        self._progress = ProgressWriter(self.writer, store, self._owner)
        self.events = Events(broker, is_shared=not is_memory, on_progress=self._progress.on_event)
        self.ending = Ending(
            broker, store, self.writer, events=self.events, stats=self.stats, refuse=self._refuse_result
        )
        self._refusals = Refusals(broker, store, self.ending)
        self.outbox = Outbox(broker, store, self.writer, ending=self.ending, publish_timeout_s=publish_timeout_s)
        self.acceptor = Acceptor(
            broker,
            store,
            self.writer,
            ending=self.ending,
            outbox=self.outbox,
            refusals=self._refusals,
            events=self.events,
            stats=self.stats,
            is_memory=is_memory,
        )
        self.broker = broker
        self.is_memory = is_memory
        self._retention = retention
        self._loop = asyncio.get_running_loop()
        self._consumers: list[Consumer] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] = self._loop.create_future()

    async def start(self) -> None:
        """Return once it takes tasks and results."""
        declared = [*topology.shared(), *topology.recorder()]
        await self.broker.declare(*declared)
        if self.is_memory:
            await self.outbox.clear()
        intake = {
            topology.SUBMIT: self.acceptor.on_delivery,
            topology.RESULTS: self.ending.on_delivery,
            topology.DEAD: self._on_letter,
        }
        for queue, on_delivery in intake.items():
            consumer = await self.broker.consume(queue, on_delivery, prefetch=PREFETCH, topology=declared)
            self._consumers.append(consumer)
        self._consumers.append(await self.events.consume())
        for consumer in self._consumers:
            self._spawn(consumer.wait_ended(), f"watch[{consumer.queue}]")
        self._spawn(self.outbox.run(), "outbox")
        self._spawn(self._forget(), "forget")

    async def wait_failed(self) -> None:
        """Never returns; raises why it can no longer record."""
        await asyncio.shield(self._failed)

    def watch(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run it until `stop`; should it raise, the recorder can no longer record."""
        self._spawn(work, name)

    async def stop(self) -> None:
        """Take nothing new; what is in hand is written, or left to the broker."""
        self.events.stop()
        for consumer in self._consumers:
            with suppress(CanoaError):
                await consumer.cancel()
        self.ending.stop()
        self.acceptor.stop()
        self._refusals.stop()
        await self._progress.stop()
        await self.writer.aclose()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _refuse_result(self, delivery: Delivery, why: str) -> None:
        self._refusals.refuse_result(delivery, why)

    # --- Dead letters -------------------------------------------------------------------------------

    def _on_letter(self, delivery: Delivery) -> None:
        self._bury(delivery, reading.letter(delivery.message, now_ms()))

    def _bury(self, delivery: Delivery, change: Bury) -> None:
        if not delivery.is_settled:
            self.writer.post(change, partial(self._on_buried, delivery, change))

    def _on_buried(self, delivery: Delivery, change: Bury, answer: Answer | CanoaError) -> None:
        if isinstance(answer, CanoaError) and not is_lasting(answer):
            self.stats.not_written(answer)
            self._loop.call_later(REPEAT_AFTER_S, self._bury, delivery, change)
            return
        delivery.settle()
        if isinstance(answer, CanoaError):
            log.error("letter_not_kept", task_id=change.letter.task_id, reason=str(answer))
            return
        self.stats.written()
        if answer:
            self.stats.buried += 1
            letter = change.letter
            at, outcome = as_time(letter.dead_ms), letter.reason.value
            self.events.tell(
                Event(
                    kind="dead", task_id=letter.task_id, action=letter.action, at=at, outcome=outcome, text=letter.error
                )
            )

    # --- Housekeeping -------------------------------------------------------------------------------

    async def _forget(self) -> None:
        """One recorder at a time, a little at a time, so that nobody waits for it."""
        while True:
            await asyncio.sleep(FORGET_EVERY_S)
            try:
                held_ms = int(2 * FORGET_EVERY_S * 1000)
                if await self.store.lease("forget", self._owner, now_ms=now_ms(), for_ms=held_ms) is None:
                    continue
                while await self.store.forget(self._retention, now_ms=now_ms(), limit=FORGET_ROWS) >= FORGET_ROWS:
                    pass
            except CanoaError as exc:
                log.warning("retention_waits", reason=str(exc))

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = self._loop.create_task(work, name=f"recorder.{name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: asyncio.Task[Any]) -> None:
        """None of them may end with an error: a recorder that lost one of them must say so and end."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            log.error("recorder_cannot_record", reason=str(error))
            self._failed.set_exception(error)
            self._failed.exception()  # seen: `wait_failed` may never be awaited


@asynccontextmanager
async def recording(
    broker: Broker,
    store: Store,
    *,
    is_memory: bool,
    retention: Retention | None = None,
    publish_timeout_s: float = PUBLISH_TIMEOUT_S,
) -> AsyncIterator[Recorder]:
    """Ready inside, stopped at the end. `publish_timeout_s`: how long the broker tries to send a message."""
    recorder = Recorder(
        broker,
        store,
        is_memory=is_memory,
        retention=retention or Retention(),
        publish_timeout_s=publish_timeout_s,
    )
    try:
        await recorder.start()
        yield recorder
    finally:
        await recorder.stop()
