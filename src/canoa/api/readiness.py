"""Whether work can arrive: proven by a message that goes through the broker and comes back.

A link that looks open proves nothing, so a probe publishes to a queue of its own and waits for that very message. All
who ask within a second share one probe: asking often costs the broker nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import Broker, Consumer, Delivery, Message, Publication
from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.wire.ids import new_client_id, new_task_id

log = get_logger(__name__)

PROBE_WITHIN_S: Final = 2.0
"""Supervisors ask with limits of a few seconds; an answer that comes later is none."""

PROBE_EVERY_S: Final = 1.0

TRY_AGAIN_AFTER_S: Final = 1.0
CLOSE_WITHIN_S: Final = 2.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`reason`: why not; None when ready. `at_s`: by the probe's clock."""

    at_s: float
    round_trip_ms: float | None = None
    reason: str | None = None


class Readiness:
    """Made by `probing`. Has a broker object of its own, so that it disturbs nobody's deliveries."""

    def __init__(
        self,
        new_broker: Callable[[], Broker],
        *,
        within_s: float = PROBE_WITHIN_S,
        every_s: float = PROBE_EVERY_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._new_broker = new_broker
        self._within_s = within_s
        self._every_s = every_s
        self._now = now
        self._queue = topology.probe_queue(new_client_id())
        self.queue = self._queue.name
        self._broker: Broker | None = None
        self._listens = asyncio.Event()
        self._trouble = ""
        self._waiting: dict[str | None, asyncio.Future[None]] = {}
        self._probing: asyncio.Task[Verdict] | None = None
        self._last: Verdict | None = None

    async def verdict(self) -> Verdict:
        """At most `every_s` old, after at most about `within_s`."""
        if self._last is not None and self._now() - self._last.at_s < self._every_s:
            return self._last
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name="readiness.probe")
        return await asyncio.shield(self._probing)  # shared: one that asks no more must not end it for the others

    async def _probe(self) -> Verdict:
        started_s = self._now()
        try:
            async with asyncio.timeout(self._within_s):
                await self._listens.wait()
                await self._round_trip()
        except (TimeoutError, CanoaError) as exc:
            self._last = Verdict(at_s=self._now(), reason=self._explained(exc))
        else:
            now_s = self._now()
            self._last = Verdict(at_s=now_s, round_trip_ms=round((now_s - started_s) * 1000, 3))
        return self._last

    def _explained(self, error: Exception) -> str:
        if isinstance(error, CanoaError):
            return str(error)
        because = f": {self._trouble}" if self._trouble and not self._listens.is_set() else ""
        return f"no message came back through the broker within {self._within_s:g} s{because}"

    async def _round_trip(self) -> None:
        assert self._broker is not None
        message = Message(body=b"", message_id=new_task_id(), persistent=False, type="canoa.probe")
        back = self._waiting[message.message_id] = asyncio.get_running_loop().create_future()
        try:
            await self._broker.publish(Publication(message=message, key=self.queue))
            await back
        finally:
            del self._waiting[message.message_id]

    def _on_delivery(self, delivery: Delivery) -> None:
        """One that nobody waits for came too late."""
        delivery.settle()
        back = self._waiting.get(delivery.message.message_id)
        if back is not None and not back.done():
            back.set_result(None)

    async def listen(self) -> None:
        """For ever: with another broker object when one is of no more use. Apart from the probes, whose limit is too
        short to connect over a slow link."""
        while True:
            try:
                await self._listen_once(self._new_broker())
            except CanoaError as exc:
                self._trouble = str(exc)
                log.debug("probe_cannot_receive", reason=self._trouble)
            await asyncio.sleep(TRY_AGAIN_AFTER_S)

    async def _listen_once(self, broker: Broker) -> None:
        try:
            await broker.open()
            consumer = await broker.consume(self.queue, self._on_delivery, prefetch=10, topology=[self._queue])
            self._broker = broker
            self._listens.set()
            try:
                await consumer.wait_ended()
            finally:
                self._listens.clear()
                await self._leave(broker, consumer)
        finally:
            await broker.aclose()

    async def _leave(self, broker: Broker, consumer: Consumer) -> None:
        with suppress(CanoaError, TimeoutError):  # the queue expires by itself
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await consumer.cancel()
                await broker.delete_queue(self.queue)

    def stop(self) -> None:
        if self._probing is not None:
            self._probing.cancel()


@asynccontextmanager
async def probing(
    new_broker: Callable[[], Broker],
    *,
    within_s: float = PROBE_WITHIN_S,
    every_s: float = PROBE_EVERY_S,
    now: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Readiness]:
    """Not ready yet when it starts: a broker that is not there stops nobody from asking."""
    readiness = Readiness(new_broker, within_s=within_s, every_s=every_s, now=now)
    listening = asyncio.create_task(readiness.listen(), name="readiness.listen")
    try:
        yield readiness
    finally:
        readiness.stop()
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
