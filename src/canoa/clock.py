"""What time it is: a need that rules and drivers take as an argument, so that tests can move it.

Also how stamps that travel become times that people read.
`SystemClock` is the real one; `canoa.testing.VirtualClock` stands still until it is told to move. Waiting is not here:
that belongs to the event loop.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_000
"""Where the calendar begins and ends, the years 1 and 9999. A message may claim more."""


class Clock(Protocol):
    """Two readings of time, both in seconds. Neither ever waits."""

    def now_s(self) -> float:
        """Since the epoch, UTC. May jump when somebody sets the machine's clock: for stamps that travel."""

    def monotonic_s(self) -> float:
        """Since some moment of this process. Never goes back: for durations and local time limits."""


class SystemClock:
    """The machine's own clocks."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


def now_ms() -> int:
    """Since the epoch, as stamps that travel and stores count it."""
    return time.time_ns() // 1_000_000


def elapsed_ms() -> int:
    """By a clock that nobody sets, and that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@lru_cache(64)  # what comes together has a time or two in common
def as_time(ms: int) -> datetime:
    """Such a stamp as people read it."""
    return datetime.fromtimestamp(min(max(ms, _FIRST_MS), _LAST_MS) / 1000, UTC)


def as_time_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else as_time(ms)


_port: type[Clock] = SystemClock
