"""Where limits are kept: the part of the store that says who may start, and the same inside one process.

The one in the process serves limits of each worker by itself, and the memory broker, whose workers are all in here.
"""

from __future__ import annotations

import asyncio
import math
from random import random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from canoa.errors import CanoaError
from canoa.execution import gcra
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")

log = get_logger(__name__)

REPEAT_AFTER_S: Final = 0.2
REPEAT_CAP_S: Final = 5.0


class Limiter(Protocol):
    """See `store/port.py`, which promises the same."""

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int: ...

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool: ...

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None: ...


class LocalLimiter:
    """In memory, for one event loop. It never waits, so nothing happens in between."""

    def __init__(self) -> None:
        self._next_ms: dict[str, float] = {}
        self._slots: dict[str, dict[str, int]] = {}

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        next_ms = self._next_ms.get(key, 0.0)
        room = gcra.reserved(next_ms, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=within_ms)
        if room is None:
            return -1
        first_ms, self._next_ms[key] = room
        return math.ceil(first_ms)

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        held = {each: until_ms for each, until_ms in self._slots.get(key, {}).items() if until_ms > now_ms}
        held.pop(holder, None)
        if len(held) >= limit:
            return False
        self._slots[key] = {**held, holder: now_ms + for_ms}
        return True

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        for key, holder in holders:
            held = self._slots.get(key, {})
            held.pop(holder, None)
            if not held:
                self._slots.pop(key, None)


class Patient:
    """Asks a limiter until it answers: while it does not, nothing starts. Logs the silence once, and its end."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self._is_silent = False

    async def ask(self, question: Callable[[Limiter], Awaitable[T]]) -> T:
        wait_s = REPEAT_AFTER_S
        while True:
            try:
                answer = await question(self.limiter)
            except CanoaError as exc:
                self.on_silence(exc)
            else:
                self._on_answer()
                return answer
            await asyncio.sleep(wait_s * (0.5 + random()))
            wait_s = min(2 * wait_s, REPEAT_CAP_S)

    def on_silence(self, exc: CanoaError) -> None:
        if not self._is_silent:
            self._is_silent = True
            log.warning("limits_not_answered", reason=str(exc))

    def _on_answer(self) -> None:
        if self._is_silent:
            self._is_silent = False
            log.info("limits_answered_again")


_port: type[Limiter] = LocalLimiter
