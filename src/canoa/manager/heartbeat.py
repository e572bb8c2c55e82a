"""Tells nodes that managers are there, and now and then asks all of them to register again.

One manager beats: it holds the lease, and leads. Every manager also says once, soon after its start, that all shall
register: whoever came while nobody was there did so in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from canoa.broker.port import Broker, PublishOutcome
    from canoa.clock import Clock
    from canoa.store.port import Store

log = get_logger(__name__)

BEAT_EVERY_S: Final = 5.0
FORCE_EVERY: Final = 10  # beats
HELLO_AFTER_S: Final = 2.5

LEASE: Final = "manager.heartbeat"
LEASE_S: Final = 6.0
"""Shorter replaces a killed manager sooner, and asks the store more."""
ASK_EVERY_S: Final = LEASE_S / 3

EXPIRES_S: Final = 30.0
"""A beat that waits for longer says nothing about now."""


Tell: TypeAlias = Callable[[str, Message], None]
"""A name of `topology.py`, and what is said under it."""


class Beat(NamedTuple):
    at_s: float  # since the beating began
    is_forced: bool


def next_beat(elapsed_s: float) -> Beat:
    """The first one at or after that time: the first at zero, every tenth forced. Missed ones are left out."""
    number = max(0, -int(-elapsed_s // BEAT_EVERY_S))
    return Beat(number * BEAT_EVERY_S, (number + 1) % FORCE_EVERY == 0)


class Heart:
    def __init__(self, broker: Broker, store: Store, *, manager_id: str, clock: Clock) -> None:
        self._broker = broker
        self._store = store
        self._manager_id = manager_id
        self._clock = clock
        self._last_ms = 0
        self.tell_others: Tell = _nobody_else
        """Whoever is not on the broker hears it by this."""
        self.is_leading = False  # what one manager does for all, it does

    async def say_hello(self) -> None:
        await asyncio.sleep(HELLO_AFTER_S)
        self.beat(is_forced=True)

    async def run(self) -> None:
        """Beat whenever the lease is ours, until cancelled."""
        began_s, beat = 0.0, next_beat(0.0)
        while True:
            was_leading, self.is_leading = self.is_leading, await self._asked()
            now_s = self._clock.monotonic_s()
            if self.is_leading and not was_leading:
                began_s, beat = now_s, next_beat(0.0)
                log.info("heartbeat_begins")
            if self.is_leading and now_s >= began_s + beat.at_s:
                self.beat(is_forced=beat.is_forced)
                beat = next_beat(max(now_s - began_s, beat.at_s + BEAT_EVERY_S / 2))
            left_s = began_s + beat.at_s - now_s if self.is_leading else ASK_EVERY_S
            await asyncio.sleep(max(0.0, min(left_s, ASK_EVERY_S)))

    async def stop(self) -> None:
        """Another manager may beat at once."""
        if self.is_leading:
            with suppress(CanoaError):
                await self._store.release(LEASE, self._manager_id)

    async def _asked(self) -> bool:
        now_ms = int(self._clock.now_s() * 1000)
        try:
            lease = await self._store.lease(LEASE, self._manager_id, now_ms=now_ms, for_ms=int(LEASE_S * 1000))
        except CanoaError as exc:
            # Nodes shall not think that nobody is there: whoever had the lease goes on until somebody takes it.
            log.warning("heartbeat_lease_waits", reason=str(exc))
            return self.is_leading
        return lease is not None

    def beat(self, *, is_forced: bool) -> None:
        """By both ways that nodes may listen on; the same `ts` says that it is the same."""
        now_ms = int(self._clock.now_s() * 1000)
        is_repeated = 0 <= self._last_ms - now_ms < BEAT_EVERY_S * 1000  # and not a clock that was set back
        self._last_ms = self._last_ms + 1 if is_repeated else now_ms
        body = sapparchi.encode(sapparchi.Heartbeat(force_register=is_forced, ts=self._last_ms))
        message = Message(body=body, content_type="application/json", persistent=False, expiration_s=EXPIRES_S)
        for exchange in (topology.MANAGER_AVAILABLE, topology.AMQ_TOPIC):
            self._broker.post(
                Publication(message=message, exchange=exchange, key=topology.MANAGER_AVAILABLE, mandatory=False),
                _ignored,
            )
        self.tell_others(topology.MANAGER_AVAILABLE, message)


def _nobody_else(_: str, __: Message) -> None:
    """All are on the broker."""


def _ignored(_: PublishOutcome) -> None:
    """The next one comes soon."""
