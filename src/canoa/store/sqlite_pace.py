"""When moves that were decided are written to a SQLite file, and where: on the event loop, or in the writer's thread.

Arithmetic over how many there are and how long the disk took lately; no connection, and the time comes in. Who writes
is `sqlite_ahead.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.store.sqlite_flight import size_bytes

if TYPE_CHECKING:
    from canoa.store.sqlite_flight import Flight
    from canoa.store.sqlite_routed import RoutedRows

LINGER_S: Final = 0.003
UNHURRIED_S: Final = 0.01
"""How long moves that owe nothing may wait for company, and those of which nobody waits until they are on disk: a quick
action ends within it, and is written once. Longer finds more of them, also on busy machines; what is not written yet
runs twice should this program be killed."""

CROWD: Final = 50
CROWD_EACH_S: Final = 0.0002
CROWD_EVERY_S: Final = 0.05
"""So many moves wait for each other, by so much each and at most so long: what happens to a task meanwhile is written
once. Longer writes fewer rows, and holds up callers who wait for an answer before they go on. With 20 ms at most, large
gathers, chains and fan-outs were 6 to 9 % slower."""

FULL: Final = 1_000
"""Moves that are written as soon as they can be."""

FEW_ROWS: Final = 16
FEW_BYTES: Final = 64 * 1024
QUICK_S: Final = 0.002
"""So little is written on the event loop, as long as the disk takes less than this for it: handing it over would take
half as long again."""

TOOK_WEIGHT: Final = 0.2
"""Of the newest in the mean: one that took long sends the next ones to the thread."""

FORGIVEN: Final = 0.9
"""Of the mean is left with each that went to the thread: so the loop is tried again."""

HERE: Final = 64
"""Such writes, until one goes through the thread: that is where the log is written into the file, which takes long."""


class Pace:
    """Of one file."""

    def __init__(self) -> None:
        self.began_s = float("-inf")  # the last write
        self._took_s = 2 * QUICK_S  # lately, for little
        self._here = 0  # written on the loop since the thread wrote

    def wait_s(self, flight: Flight, *, has_open_tasks: bool, now_s: float) -> float:
        """Until it leaves. `has_open_tasks`: more may come of those that are remembered."""
        if flight.count >= FULL:
            return 0
        if flight.count < CROWD:
            linger_s = LINGER_S if flight.is_hurried else UNHURRIED_S
            return 0 if flight.is_awaited else flight.began_s + linger_s - now_s
        if not has_open_tasks and flight.ledger.has_ended_all:  # the last of a crowd: there is nothing to wait for
            return 0
        return self.began_s + min(CROWD_EVERY_S, flight.count * CROWD_EACH_S) - now_s

    def begins(self, now_s: float) -> None:
        self.began_s = now_s

    def is_for_here(self, rows: RoutedRows) -> bool:
        """Whether they are written on the event loop."""
        if sum(map(len, rows)) > FEW_ROWS or size_bytes(rows) > FEW_BYTES:
            return False
        if self._took_s > QUICK_S or self._here >= HERE:
            self._took_s *= FORGIVEN
            return False
        return True

    def took_here(self, seconds: float) -> None:
        self._took_s += TOOK_WEIGHT * (seconds - self._took_s)
        self._here += 1

    def goes_to_thread(self) -> None:
        self._here = 0
