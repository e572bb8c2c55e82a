"""One after the other."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from canoa.manager.routing.port import Chosen, Rated, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from canoa.execution.step_moves import Need
    from canoa.manager.routing.port import Candidate, Seen
    from canoa.vocabulary import ActionName, Layer, NodeId

    _Round: TypeAlias = tuple[ActionName, Layer, str]


class RoundRobin:
    """`start`: where each action's round begins; managers that differ in it do not send to the same node together."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._turns: dict[_Round, count[int]] = {}
        self._next: dict[_Round, int] = {}  # for people: whoever chooses takes turns

    def choose(self, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]) -> Chosen | None:
        length = len(candidates)
        for _ in range(min(length, len(avoid) + 1)):  # each of `avoid` costs a turn at most
            candidate = candidates[self.turn(need, candidates) % length]
            if candidate.node_id not in avoid:
                return Chosen(candidate, why(length))
        return _first_other(candidates, avoid)

    def turn(self, need: Need, candidates: Sequence[Candidate]) -> int:
        """The next one: whose it is, follows from how many there are."""
        round_ = _round(need, candidates)
        turns = self._turns.get(round_)
        if turns is None:
            turns = self._turns.setdefault(round_, count(self._start))
        turn = next(turns)  # a step for all threads: no two get the same turn
        self._next[round_] = turn + 1
        return turn

    def learn(self, seen: Seen) -> None:
        """Nothing: its turn comes, however it went."""

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        """By whose turn comes first."""
        if not candidates:
            return []
        turn, length = self._next.get(_round(need, candidates), self._start), len(candidates)
        in_turn = [candidates[(turn + after) % length] for after in range(length)]
        return [Rated(each, float(after), _turn_why(after)) for after, each in enumerate(in_turn)]


def _round(need: Need, candidates: Sequence[Candidate]) -> _Round:
    """Of its own for each part of an action's nodes that placements make: they are told apart well enough by this."""
    first = candidates[0]
    return need.action, first.layer, first.site


def _first_other(candidates: Sequence[Candidate], avoid: frozenset[NodeId]) -> Chosen | None:
    """Other threads took turns in between, and all of ours met `avoid`."""
    found = next((each for each in candidates if each.node_id not in avoid), None)
    return None if found is None else Chosen(found, why(len(candidates)))


def _turn_why(after: int) -> str:
    return "its turn is next" if after == 0 else f"its turn comes after {after} other{'s' if after > 1 else ''}"


@cache
def why(length: int) -> str:
    """One of so many, for people."""
    return f"round robin over {length} nodes" if length > 1 else "the only node that may have it now"


_port: type[Strategy] = RoundRobin
