"""Where the fewest attempts are out, by this manager's count; among equals, where the node says that it does least."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from canoa.manager.routing.drawing import NAMED, drawn
from canoa.manager.routing.port import Chosen, Rated, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_moves import Need
    from canoa.manager.routing.port import Candidate, Seen
    from canoa.manager.routing.traffic import Traffic
    from canoa.vocabulary import NodeId

LOOKED_AT: Final = 16
"""Drawn at random where there are more. More finds a freer node, and takes longer."""


class LeastLoaded:
    def __init__(self, traffic: Traffic, *, seed: int | None = None) -> None:
        self._traffic = traffic
        self._random = Random(seed)

    def choose(self, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]) -> Chosen | None:
        looked_at = drawn(candidates, avoid, at_most=LOOKED_AT, random=self._random)
        if not looked_at:
            return None
        rand = self._random.random
        rated = sorted(((self._load(each, need), rand(), each) for each in looked_at), key=lambda each: each[:2])
        (load, _, best), *others = rated
        why = f"least loaded of {len(looked_at)}: {_in_words(load)}"
        if others:
            beside = (f"{each.node_id} {_in_words(load)}" for load, _, each in others[:NAMED])
            why = f"{why}; {', '.join(beside)}"
        return Chosen(best, why)

    def learn(self, seen: Seen) -> None:
        """Nothing: what is out is counted for all strategies."""

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        rated = sorted(((self._load(each, need), each) for each in candidates), key=lambda pair: pair[0])
        return [Rated(each, load[0], _in_words(load)) for load, each in rated]

    def _load(self, candidate: Candidate, need: Need) -> tuple[int, float]:
        return round(self._traffic.out(candidate.node_id, need.now_ms)), candidate.load or 0.0


def _in_words(load: tuple[int, float]) -> str:
    out, share = load
    return f"{out} out and {share:.0%} load" if share else f"{out} out"


_port: type[Strategy] = LeastLoaded
