"""How far this machine's clock is from that of its managers, as their heartbeats say. Pure: readings in, a shift out.

Deadlines of routed work are read by managers' time, and so are the stamps in its story: a device may have a clock that
nobody sets. A heartbeat travels for a moment, so the least difference of the last ones is the nearest to the truth.
"""

from __future__ import annotations

from collections import deque
from typing import Final

BEATS: Final = 3
"""More bridges a longer hiccup of the link, and takes longer to see that a clock was set."""

IN_STEP_MS: Final = 5_000
"""Clocks that differ by less are taken as they are: heartbeats do not travel more exactly than that."""


class ManagersTime:
    def __init__(self) -> None:
        self._differences_ms: deque[int] = deque(maxlen=BEATS)
        self.ahead_ms = 0
        """Of managers' time, this machine's; zero while both are in step, or nobody was heard."""

    def heard(self, manager_ms: int, now_ms: int) -> bool:
        """Whether `ahead_ms` has changed by more than a heartbeat's travel."""
        before_ms = self.ahead_ms
        self._differences_ms.append(now_ms - manager_ms)
        least_ms = min(self._differences_ms)
        self.ahead_ms = least_ms if abs(least_ms) > IN_STEP_MS else 0
        return abs(self.ahead_ms - before_ms) > IN_STEP_MS
