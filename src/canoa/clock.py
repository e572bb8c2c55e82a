"""What time it is: a need that rules and drivers take as an argument, so that tests can move it.

`SystemClock` is the real one; `canoa.testing.VirtualClock` stands still until it is told to move. Waiting is not here:
that belongs to the event loop.
"""

from __future__ import annotations

import time
from typing import Protocol


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


_port: type[Clock] = SystemClock
