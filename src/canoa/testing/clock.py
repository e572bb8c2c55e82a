"""A clock that stands still until a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.errors import SettingError

if TYPE_CHECKING:
    from canoa.clock import Clock


class VirtualClock:
    """Starts at `now_s` (wall) and zero (monotonic); moves only by `advance`."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self._started_s = now_s
        self._elapsed_s = 0.0

    def now_s(self) -> float:
        return self._started_s + self._elapsed_s

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once. Time does not go back: a negative step raises `SettingError`."""
        if seconds < 0:
            raise SettingError(f"a clock cannot advance by {seconds} s; give zero or more seconds")
        self._elapsed_s += seconds


_port: type[Clock] = VirtualClock
