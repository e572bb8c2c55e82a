"""Where the fewest attempts are out, by this manager's count; among equals, where the node says that it does least."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from canoa.manager.routing.drawing import drawn
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
        (out, load), _, best = min(
            ((self._load(each, need), rand(), each) for each in looked_at), key=lambda rated: rated[:2]
        )
        says = "" if not load else f", and says {load:.0%} load"
        return Chosen(best, f"least loaded of {len(looked_at)}: {out} out{says}")

    def learn(self, seen: Seen) -> None:
        """Nothing: what is out is counted for all strategies."""

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        rated = sorted(((self._load(each, need), each) for each in candidates), key=lambda pair: pair[0])
        return [Rated(each, out, f"{out} out, and says {load:.0%} load") for (out, load), each in rated]

    def _load(self, candidate: Candidate, need: Need) -> tuple[int, float]:
        return round(self._traffic.out(candidate.node_id, need.now_ms)), candidate.load or 0.0


_port: type[Strategy] = LeastLoaded
