"""Moves on their way to a SQLite file together, and what must be known of them. Values; see `sqlite_ahead.py`."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from canoa.store.routed_ledger import RoutedLedger
from canoa.store.same_choices import SameChoices
from canoa.store.telling import tell
from canoa.wire.sapparchi import NODE_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.errors import CanoaError
    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move, Moved, OnMoved, Owed
    from canoa.store.routed_unwritten import Send
    from canoa.store.sqlite_routed import RoutedRows


class Hearing(NamedTuple):
    """Whoever gave moves hears in this order: what may leave at once, that they are committed, that they are on disk,
    or why not. See `routed_port.DecidesAhead`."""

    ahead: Callable[[Sequence[Owed]], None] | None
    on_committed: Callable[[Sequence[Moved]], None]
    on_end: OnMoved


class Batch(NamedTuple):
    """Moves that came together. `answers`: as decided, until they are on disk."""

    moves: Sequence[Move]
    hearing: Hearing
    answers: list[Moved]

    def committed(self) -> None:
        tell(self.hearing.on_committed, self.answers)

    def end(self, error: CanoaError | None) -> None:
        tell(self.hearing.on_end, self.answers if error is None else error)


class Flight:
    """Batches that are written together."""

    def __init__(self, notes: Notes, route: Route, settings: StepSettings) -> None:
        self.route = route
        self.choices = SameChoices(route)  # should it be decided again
        self.ledger = RoutedLedger({}, notes, route=self.choices, settings=settings)
        self.settings = settings
        self.batches: list[Batch] = []
        self.began_s = monotonic()
        self.count = 0  # of moves
        self.is_awaited = False
        self.is_on_disk = True  # once it is written
        self.is_hurried = False  # somebody waits for that
        self.paid: frozenset[str] = frozenset()  # what it did not write down as owed
        self.takes_all = False  # that earlier ones left out
        self.sends: list[Send] = []  # of those, what it writes
        self.running: list[str] = []  # tasks, likewise

    def is_for(self, route: Route, settings: StepSettings) -> bool:
        return self.route is route and self.settings == settings


def without_sent(again: Sequence[Moved], before: Sequence[Moved]) -> list[Moved]:
    """What has left for the same node already need not be sent once more."""
    left = {each.key: _node_of(each) for moved in before for each in moved.sent}
    if not left:
        return [*again]
    return [
        msgspec.structs.replace(
            moved,
            sent=tuple(each for each in moved.owed if left.get(each.key) == _node_of(each)),
            owed=tuple(each for each in moved.owed if left.get(each.key) != _node_of(each)),
        )
        for moved in again
    ]


def _node_of(owed: Owed) -> object:
    """Nobody is no node: what goes to callers has none."""
    return owed.publication.message.headers.get(NODE_ID, owed)


def size_bytes(rows: RoutedRows) -> int:
    """Of the blobs, which come last in a row: at most two of them."""
    return sum(len(value) for values in rows for row in values for value in row[-2:] if isinstance(value, bytes))
