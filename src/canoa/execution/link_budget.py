"""How much may travel to and from a node, or a layer, in a given time: how that is written, and whether there is room.

Pure: bytes and times in, an answer out. Who counts, and keeps work away, is the manager: `manager/budgets.py`.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

import msgspec

from canoa.errors import SettingError

_BYTES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS_MS: Final = {"s": 1000, "min": 60_000, "h": 3_600_000, "day": 86_400_000}

BUDGET: Final = rf"([1-9][0-9]{{0,5}})({'|'.join(_BYTES)})/({'|'.join(_UNITS_MS)})"
"""A budget as text: `10MB/day`."""

SLOTS: Final = 60
"""Parts of a window that are counted for themselves. More give room back more smoothly, and cost memory."""

HOLD_MS: Final = 10_000
"""After which what was to be sent, and never was, is not waited for any more: as long as a way may take to answer."""


class LinkBudget(msgspec.Struct, frozen=True):
    """So many bytes, both ways together, in any `per_ms`."""

    max_bytes: int
    per_ms: int
    text: str  # as it was written, for people


def parse_budget(name: str, text: str) -> LinkBudget:
    """From `10MB/day`, `200kB/min` and the like. Raises `SettingError`, under that name."""
    found = re.fullmatch(BUDGET, text)
    if found is None:
        raise SettingError(
            f"{name} is {text!r:.40}; use a whole number of {', '.join(_BYTES)} per {', '.join(_UNITS_MS)}, "
            f"such as '10MB/day'"
        )
    return LinkBudget(int(found[1]) * _BYTES[found[2]], _UNITS_MS[found[3]], text)


class LinkUse(NamedTuple):
    """What travelled to and from a node, as one manager counted it since it started."""

    out_bytes: int = 0
    in_bytes: int = 0
    over_why: str = ""  # why it gets no work now; empty: it may have some


class Window:
    """What was spent lately. Times are milliseconds of a clock that never goes back.

    Whoever spends only while there is room spends, in any `per_ms`, no more than the budget and the last piece. What is
    about to be spent is held meanwhile: many who ask at once must not all find the same room.
    """

    __slots__ = ("_held_bytes", "_held_ms", "_slot_ms", "_slots", "_spent_bytes", "budget")

    def __init__(self, budget: LinkBudget) -> None:
        self.budget = budget
        self._slot_ms = -(-budget.per_ms // SLOTS)
        self._slots: deque[tuple[int, int]] = deque()  # number and bytes, the oldest first
        self._spent_bytes = 0
        self._held_bytes = 0
        self._held_ms = 0.0

    def has_room(self, now_ms: float) -> bool:
        self._forget(now_ms)
        return self._spent_bytes + self._held_bytes < self.budget.max_bytes

    def spend(self, size_bytes: int, now_ms: float) -> None:
        number = int(now_ms // self._slot_ms)
        if self._slots and self._slots[-1][0] == number:
            self._slots[-1] = (number, self._slots[-1][1] + size_bytes)
        else:
            self._slots.append((number, size_bytes))
        self._spent_bytes += size_bytes

    def hold(self, size_bytes: int, now_ms: float) -> None:
        self._held_bytes += size_bytes
        self._held_ms = now_ms

    def release(self, size_bytes: int) -> None:
        """It was spent, or will not be."""
        self._held_bytes = max(0, self._held_bytes - size_bytes)

    def room_at_ms(self, now_ms: float) -> float:
        """When there will be some, unless more is spent; now, where there is."""
        if self.has_room(now_ms):
            return now_ms
        at_ms = self._held_ms + HOLD_MS if self._held_bytes else now_ms
        left_bytes = self._spent_bytes
        for number, size_bytes in self._slots:
            if left_bytes < self.budget.max_bytes:
                break
            left_bytes -= size_bytes
            at_ms = max(at_ms, self._over_ms(number))
        return at_ms

    def _forget(self, now_ms: float) -> None:
        while self._slots and self._over_ms(self._slots[0][0]) <= now_ms:
            self._spent_bytes -= self._slots.popleft()[1]
        if self._held_bytes and now_ms >= self._held_ms + HOLD_MS:
            self._held_bytes = 0

    def _over_ms(self, number: int) -> float:
        """When nothing of that slot counts any more: a whole window after its end."""
        return float((number + 1 + SLOTS) * self._slot_ms)
