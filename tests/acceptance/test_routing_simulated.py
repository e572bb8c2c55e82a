"""Learned routing, over a hundred worlds with nodes of different and changing speed: what it promises beside others."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from canoa.manager.routing.learned import Learned
from canoa.manager.routing.power_of_two import PowerOfTwo
from canoa.manager.routing.round_robin import RoundRobin
from canoa.manager.routing.simulator import share, simulate, slowed, world

if TYPE_CHECKING:
    from canoa.manager.routing.simulator import Run
    from canoa.manager.routing.traffic import Traffic

SEEDS = range(100)
SLOWED_AT = 600
WINDOW = 50


class Runs(NamedTuple):
    learned: Run
    power_of_two: Run
    round_robin: Run


@cache
def runs(seed: int) -> Runs:
    given = world(seed, requests=2_000)
    return Runs(
        simulate(given, lambda traffic: Learned(traffic, seed=seed)),
        simulate(given, lambda traffic: PowerOfTwo(traffic, seed=seed)),
        simulate(given, lambda _: RoundRobin()),
    )


def test_learned_routing_beats_round_robin_by_a_third_in_mean_and_p95() -> None:
    for seed in SEEDS:
        learned, _, round_robin = runs(seed)
        assert learned.mean_ms <= 0.7 * round_robin.mean_ms, seed
        assert learned.p95_ms <= 0.7 * round_robin.p95_ms, seed


def test_learned_routing_is_never_worse_than_power_of_two_by_more_than_a_twentieth() -> None:
    for seed in SEEDS:
        learned, power_of_two, _ = runs(seed)
        assert learned.mean_ms <= 1.05 * power_of_two.mean_ms, seed
        assert learned.p95_ms <= 1.05 * power_of_two.p95_ms, seed


def test_learned_routing_halves_a_slowed_node_s_share_within_50_requests() -> None:
    for seed in SEEDS:
        given = world(seed, requests=SLOWED_AT + 2 * WINDOW)
        before = simulate(slowed(given, given.nodes[0].candidate.node_id, from_request=SLOWED_AT, factor=1), learned)
        favourite, _ = Counter(before.nodes[:SLOWED_AT]).most_common(1)[0]

        after = simulate(slowed(given, favourite, from_request=SLOWED_AT, factor=10), learned)

        had = share(after.nodes[SLOWED_AT - 300 : SLOWED_AT], favourite)
        has = share(after.nodes[SLOWED_AT + WINDOW :], favourite)
        assert has <= had / 2, (seed, had, has)


def learned(traffic: Traffic) -> Learned:
    return Learned(traffic, seed=1)
