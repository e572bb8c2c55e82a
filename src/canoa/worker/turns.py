"""Turns under a rate: who asked first starts first, each at a start that was reserved for this worker.

Starts are reserved a few at a time and a little ahead, so that the limiter is asked rarely and no start passes unused
while a question is on its way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.clock import now_ms
from canoa.execution import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.execution.policy import Rate
    from canoa.worker.limiter import Limiter, Patient

SPARE_FOR_S: Final = 0.1
"""How long a start is kept that nobody wanted: the next task may be on its way into our hands."""

LEAD_S: Final = 0.2
"""How long before the last reserved start the next ones are asked for. Longer bridges slower stores, and holds more."""


class Turns:
    """Of one action in one worker."""

    def __init__(self, key: str, rate: Rate, patient: Patient) -> None:
        self._key = key
        self._per_ms = rate.per_ms
        self._burst = rate.burst
        self._ahead_ms = limits.ahead_ms(rate.per_ms)
        self._patient = patient
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[asyncio.Future[bool], Callable[[], bool]]] = deque()
        self._coming = 0  # starts that are reserved, and whose time has not come
        self._spare_until_s = 0.0
        self._reserving: asyncio.Task[None] | None = None

    async def take(self, is_wanted: Callable[[], bool]) -> bool:
        """Return when it is our turn. Cancelled before that, or no longer wanted then (False), the start goes to the
        next one."""
        if self._loop.time() < self._spare_until_s:
            self._spare_until_s = 0.0
            return True
        turn: asyncio.Future[bool] = self._loop.create_future()
        waiting = (turn, is_wanted)
        self._waiting.append(waiting)
        if self._reserving is None:
            self._reserving = self._loop.create_task(self._reserve(), name=f"turns[{self._key}]")
        try:
            return await turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            raise

    def stop(self) -> None:
        if self._reserving is not None:
            self._reserving.cancel()

    async def _reserve(self) -> None:
        try:
            await self._reserve_while_wanted()
        finally:
            self._reserving = None

    async def _reserve_while_wanted(self) -> None:
        while (wanted := len(self._waiting) - self._coming) > 0:
            count = limits.starts_at_once(wanted, self._per_ms, self._burst)
            first_ms = await self._patient.ask(partial(self._room_for, count))
            if first_ms < 0:
                await asyncio.sleep(self._ahead_ms / 2000)
                continue
            last_in_s = self._announce(first_ms, count)
            await asyncio.sleep(max(limits.ASK_EVERY_MS / 1000, last_in_s - LEAD_S))

    async def _room_for(self, count: int, limiter: Limiter) -> int:
        return await limiter.reserve(
            self._key,
            count=count,
            per_ms=self._per_ms,
            burst=self._burst,
            now_ms=now_ms(),
            within_ms=self._ahead_ms,
        )

    def _announce(self, first_ms: int, count: int) -> float:
        """Set the clock for each; say in how many seconds the last one comes."""
        in_s = (first_ms - now_ms()) / 1000
        for nth in range(count):
            self._coming += 1
            self._loop.call_later(max(0.0, in_s + nth * self._per_ms / 1000), self._come)
        return in_s + (count - 1) * self._per_ms / 1000

    def _come(self) -> None:
        self._coming -= 1
        while self._waiting:
            turn, is_wanted = self._waiting.popleft()
            if not turn.done():
                turn.set_result(is_wanted())
                if turn.result():
                    return
        self._spare_until_s = self._loop.time() + SPARE_FOR_S
