"""Steps whose time has come: the next attempt, another look for a node, a time limit.

The times are rows, so any manager may look, and a second look does nothing. One that holds a lease looks all the time;
beside it, each looks at the moments it set itself a short while before, so that short waits stay short.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from canoa.clock import elapsed_ms, now_ms
from canoa.errors import CanoaError
from canoa.execution.step_moves import StepDue, Verdict
from canoa.logs import get_logger
from canoa.store.routed_port import DecidesAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from canoa.manager.moving import Moving
    from canoa.store.routed_port import Due, FullStore

log = get_logger(__name__)

LOOK_EVERY_S: Final = 0.25
NEAR_MS: Final = 5_000
TICK_MS: Final = 20
"""Moments closer together than this are one look."""

LEASE: Final = "manager.timers"
LEASE_S: Final = 5.0
"""Shorter replaces a killed manager sooner, and asks the store more."""

BACK_MS: Final = 1_000
"""So much sooner than before, and the clock was set; what is less, a clock that is kept right does now and then."""

ASK_EVERY_S: Final = LEASE_S / 3
PAGE: Final = 500


class Timers:
    """`owner`: which manager this is. Also where nothing is to be done, `on_written` is called now and then while the
    store writes, and `on_trouble` while it does not."""

    def __init__(
        self,
        store: FullStore,
        moving: Moving,
        *,
        owner: str,
        on_written: Callable[[], None],
        on_trouble: Callable[[CanoaError], None],
    ) -> None:
        self._store = store
        self._moving = moving
        self._owner = owner
        self._on_written = on_written
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._near: set[int] = set()  # ticks at which to look
        self._rung = asyncio.Event()
        self._is_ours = False
        self._ahead_ms = now_ms() - elapsed_ms()  # the wall clock, of one that nobody sets
        self._back_ms = 0  # by how much it was set back, as long as steps wait for the time that it showed
        self._ask_at_s = 0.0  # by the loop's clock

    @property
    def rings(self) -> int:
        """How many looks are set ahead."""
        return len(self._near)

    def note(self, due_ms: Iterable[int]) -> None:
        """Times that a move has set."""
        at_ms = now_ms()
        for tick in {-(-each // TICK_MS) for each in due_ms if each - at_ms < NEAR_MS} - self._near:
            self._near.add(tick)
            self._loop.call_later(max(0, tick * TICK_MS - at_ms) / 1000, self._ring, tick)

    async def run(self) -> None:
        """Never returns."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._rung.wait()
            is_rung = self._rung.is_set()
            self._rung.clear()
            self._look_at_clock()
            try:
                if await self._may_look() or is_rung:
                    await self.look()
                if self._back_ms:
                    await self._begin_anew()
            except CanoaError as exc:
                log.warning("timers_wait", reason=str(exc))
                self._on_trouble(exc)

    async def look(self) -> None:
        """Move all that are due. As long as whole pages of them are, and do move."""
        while True:
            due = await self._store.due_steps(now_ms=now_ms(), limit=PAGE)
            moved = await asyncio.gather(*map(self._move, due))
            if len(due) < PAGE or not any(moved):
                return

    def _look_at_clock(self) -> None:
        ahead_ms = now_ms() - elapsed_ms()
        if ahead_ms < self._ahead_ms - BACK_MS:
            self._back_ms += self._ahead_ms - ahead_ms
            log.warning("clock_went_back", seconds=round((self._ahead_ms - ahead_ms) / 1000))
        self._ahead_ms = ahead_ms

    async def _begin_anew(self) -> None:
        """All times that were set by the clock as it was: they would come too late. Whoever looks does it for all."""
        after: Due | None = None
        while self._is_ours:
            page = await self._store.open_steps(limit=PAGE, after=after)
            await asyncio.gather(*(self._move(each, back_ms=self._back_ms) for each in page if each.due_ms))
            if len(page) < PAGE:
                break
            after = page[-1]
        self._back_ms = 0

    async def restore(self) -> None:
        """Whoever looked before may have been killed, with steps out of which no row says so. Whoever begins to look
        does it, too."""
        restored = await self._store.restore(now_ms=now_ms()) if isinstance(self._store, DecidesAhead) else 0
        if restored:
            log.info("steps_restored", steps=restored)

    async def stop(self) -> None:
        """Another manager may look at once."""
        if self._is_ours:
            with suppress(CanoaError):
                await self._store.release(LEASE, self._owner)

    async def _move(self, due: Due, *, back_ms: int = 0) -> bool:
        move = StepDue(task_id=due.task_id, step=due.step, due_ms=due.due_ms, now_ms=now_ms(), back_ms=back_ms)
        try:
            return (await self._moving.apply(move)).verdict is Verdict.TAKEN
        except CanoaError as exc:
            log.warning("step_not_moved", task_id=due.task_id, step=due.step, reason=str(exc))
            return False

    async def _may_look(self) -> bool:
        if self._loop.time() >= self._ask_at_s:
            self._ask_at_s = self._loop.time() + ASK_EVERY_S
            held_ms = round(LEASE_S * 1000)
            lease = await self._store.lease(LEASE, self._owner, now_ms=now_ms(), for_ms=held_ms)
            if lease is not None and not self._is_ours:
                await self.restore()
            self._is_ours = lease is not None
            self._on_written()
        return self._is_ours

    def _ring(self, tick: int) -> None:
        self._near.discard(tick)
        self._rung.set()
