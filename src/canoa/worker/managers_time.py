"""How far this machine's clock is from that of its managers, as their heartbeats say. Pure: readings in, a shift out.

Deadlines of routed work are read by managers' time, and so are the stamps in its story: a device may have a clock that
nobody sets, or that is set while it works. So what is remembered is how managers' time stands to a clock that nobody
sets, and the machine's own is compared with that whenever somebody asks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from canoa.wire.task import MAX_MS

BEATS: Final = 4
"""A clock that agrees with one of them is taken as it is: the others were long on their way, or come from a manager
whose own clock is wrong. Where none agrees, the one in the middle is believed, and of two there the one that says less:
what is thought to be earlier than it is, does not expire."""

IN_STEP_MS: Final = 5_000
"""Clocks that differ by less are taken as they are: heartbeats do not travel more exactly than that."""


class ManagersTime:
    """`elapsed_ms`: by a clock that nobody sets."""

    def __init__(self) -> None:
        self._offsets_ms: deque[int] = deque(maxlen=BEATS)  # of managers' time, from that clock
        self._last_ms = 0
        self._told_ms = 0
        self.is_off = False
        """As of the last heartbeat: until the next one, a clock that was in step need not be looked at."""

    def heard(self, manager_ms: int, now_ms: int, elapsed_ms: int) -> bool:
        """Whether `ahead_ms` has changed by more than a heartbeat's travel. The same one may come by several ways."""
        if manager_ms == self._last_ms or not 0 < manager_ms <= MAX_MS:
            return False
        self._last_ms = manager_ms
        self._offsets_ms.append(manager_ms - elapsed_ms)
        ahead_ms = self._ahead_ms(now_ms, elapsed_ms)
        self.is_off = ahead_ms != 0
        is_news = abs(ahead_ms - self._told_ms) > IN_STEP_MS
        if is_news:
            self._told_ms = ahead_ms
        return is_news

    def ahead_ms(self, now_ms: int, elapsed_ms: int) -> int:
        """Of managers' time, this machine's; zero while both are in step, or nobody was heard."""
        return self._ahead_ms(now_ms, elapsed_ms) if self.is_off else 0

    def _ahead_ms(self, now_ms: int, elapsed_ms: int) -> int:
        ahead_ms = sorted(now_ms - elapsed_ms - each for each in self._offsets_ms)
        return 0 if min(map(abs, ahead_ms)) <= IN_STEP_MS else ahead_ms[len(ahead_ms) // 2]
