"""Of two at random, the one whose answers take less time, times what it has to do: peak-EWMA latency.

Two choices are enough to stay away from what is slow, and few enough that managers do not all run to the same node.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from canoa.manager.routing.drawing import drawn
from canoa.manager.routing.port import Chosen, Rated, Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_moves import Need
    from canoa.manager.routing.port import Candidate, Seen
    from canoa.manager.routing.traffic import Traffic
    from canoa.vocabulary import NodeId


class PowerOfTwo:
    def __init__(self, traffic: Traffic, *, seed: int | None = None) -> None:
        self._traffic = traffic
        self._random = Random(seed)

    def choose(self, need: Need, candidates: Sequence[Candidate], *, avoid: frozenset[NodeId]) -> Chosen | None:
        pair = drawn(candidates, avoid, at_most=2, random=self._random)
        if len(pair) < 2:
            return Chosen(pair[0], "the only node that may have it now") if pair else None
        first, second = pair
        first_ms, second_ms = self._cost_ms(first, need), self._cost_ms(second, need)
        if second_ms < first_ms or (second_ms == first_ms and self._random.random() < 0.5):
            first, second, first_ms, second_ms = second, first, second_ms, first_ms
        return Chosen(first, f"of two: {first_ms:.0f} ms, and {second_ms:.0f} ms at {second.node_id}")

    def learn(self, seen: Seen) -> None:
        """Nothing: times are kept for all strategies."""

    def rate(self, need: Need, candidates: Sequence[Candidate]) -> list[Rated]:
        rated = [Rated(each, self._cost_ms(each, need), self._said(each, need)) for each in candidates]
        return sorted(rated, key=lambda each: each.score)

    def _said(self, candidate: Candidate, need: Need) -> str:
        peak_ms = self._traffic.peak_ms(need.action, candidate.node_id, need.now_ms)
        out = self._traffic.out(candidate.node_id, need.now_ms)
        return f"{'not tried yet' if peak_ms is None else f'{peak_ms:.0f} ms at worst, lately'}, {out:.0f} out"

    def _cost_ms(self, candidate: Candidate, need: Need) -> float:
        """Nothing is known of a new one: it is tried until something is."""
        peak_ms = self._traffic.peak_ms(need.action, candidate.node_id, need.now_ms)
        out = self._traffic.out(candidate.node_id, need.now_ms)
        return out + 1 if peak_ms is None else peak_ms * (out + 1)


_port: type[Strategy] = PowerOfTwo
