"""What learned routing makes of circumstances: each of them may be all that explains why something is slow."""

from __future__ import annotations

from collections import Counter
from math import cos, exp, tau
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.manager.words import RESIZE

from canoa.execution.step_moves import Need
from canoa.manager.routing.learned import DAY_MS, Learned
from canoa.manager.routing.port import Candidate, Seen
from canoa.manager.routing.simulator import World, share, simulate
from canoa.manager.routing.simulator import world as worlds
from canoa.manager.routing.traffic import Traffic
from canoa.vocabulary import Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from canoa.manager.routing.simulator import Node, Run

    Facts: TypeAlias = dict[str, Any]
    _Takes: TypeAlias = Callable[[Candidate, Need], float]

MIDNIGHT_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
HOUR_MS = 3_600_000
NOBODY: frozenset[NodeId] = frozenset()
KIB = 1024

KINDS = pytest.mark.parametrize(
    ("here", "there"),
    [({"layer": Layer.EDGE}, {"layer": Layer.CLOUD}), ({"site": "natal"}, {"site": "recife"})],
    ids=["layer", "site"],
)


def candidate(name: str, *, layer: Layer = Layer.FOG, site: str = "") -> Candidate:
    return Candidate(node_id=NodeId(name), layer=layer, site=site)


class Answering:
    """Nodes that answer at once, after as many milliseconds as `takes` says, and chance."""

    def __init__(self, takes: _Takes, *, seed: int = 1) -> None:
        self._takes = takes
        self._random = Random(seed)
        self._traffic = Traffic()
        self.learned = Learned(self._traffic, seed=seed)

    def one(self, candidates: Sequence[Candidate], at_ms: int, *, size_bytes: int = 0) -> NodeId:
        need = Need(RESIZE, at_ms, size_bytes=size_bytes)
        choice = self.learned.choose(need, candidates, avoid=NOBODY)
        assert choice is not None
        chosen = choice.candidate
        took_ms = round(self._takes(chosen, need) * self._random.lognormvariate(0, 0.2))
        self._traffic.sent(RESIZE, chosen.node_id, at_ms)
        self._traffic.ended(RESIZE, chosen.node_id, took_ms=took_ms, now_ms=at_ms + took_ms)
        self.learned.learn(Seen(RESIZE, chosen, at_ms + took_ms, took_ms=took_ms, context=choice.context))
        return chosen.node_id

    def expected_ms(self, asked: Candidate, at_ms: int, *, size_bytes: int = 0) -> float:
        [rated] = self.learned.rate(Need(RESIZE, at_ms, size_bytes=size_bytes), [asked])
        return rated.score


# --- The time of day ------------------------------------------------------------------------------------------


EDGE, FOG = candidate("edge", layer=Layer.EDGE), candidate("fog")


def by_the_hour(asked: Candidate, need: Need) -> float:
    """At the edge 15 ms at noon and 109 ms at midnight; in the fog it is always the same."""
    of_day = need.now_ms % DAY_MS / DAY_MS * tau
    return 40 * exp(cos(of_day)) if asked.layer is Layer.EDGE else 40


@pytest.mark.parametrize("per_day", [48, 480])
def test_what_is_slow_at_some_hours_is_expected_to_be_slow_at_these_only(per_day: int) -> None:
    nodes = Answering(by_the_hour)
    for number in range(10 * per_day):
        for each in (EDGE, FOG):
            nodes.one([each], MIDNIGHT_MS + number * DAY_MS // per_day)

    for hour in (0, 6, 12, 18):
        at_ms = MIDNIGHT_MS + 10 * DAY_MS + hour * HOUR_MS
        for each in (EDGE, FOG):
            is_so = by_the_hour(each, Need(RESIZE, at_ms))
            assert is_so / 2 < nodes.expected_ms(each, at_ms) < is_so * 2, (each.node_id, hour)


def test_the_first_call_of_noon_goes_where_noon_is_quick_though_midnight_was_the_last_that_was_heard_of() -> None:
    first: dict[int, list[NodeId]] = {0: [], 12: []}
    for seed in range(10):
        nodes = Answering(by_the_hour, seed=seed)
        for day in range(30):
            for hour in (0, 12):
                began_ms = MIDNIGHT_MS + day * DAY_MS + hour * HOUR_MS
                went = [nodes.one([EDGE, FOG], began_ms + number * 60_000) for number in range(20)]
                if day >= 10:
                    first[hour].append(went[0])

    assert share(first[12], EDGE.node_id) > 0.7
    assert share(first[0], EDGE.node_id) < 0.3


# --- The layer, and the site ------------------------------------------------------------------------------------


@KINDS
def test_of_two_nodes_that_are_new_that_one_is_tried_first_whose_kind_is_quick(here: Facts, there: Facts) -> None:
    known = [candidate("here", **here), candidate("there", **there)]
    new = [candidate("new-here", **here), candidate("new-there", **there)]
    first: Counter[str] = Counter()
    for seed in range(20):
        nodes = Answering(lambda asked, _: 100 if is_of(asked, there) else 10, seed=seed)
        for number in range(100):
            nodes.one([known[number % 2]], MIDNIGHT_MS + number * 100)

        assert [nodes.expected_ms(each, MIDNIGHT_MS) for each in new] == pytest.approx([10, 100], rel=0.5)
        went = (nodes.one([*known, *new], MIDNIGHT_MS + 10_000 + number * 100) for number in range(1_000))
        first[next(node_id for node_id in went if node_id.startswith("new-"))] += 1

    assert first["new-here"] >= 18


@KINDS
def test_large_inputs_go_where_they_are_not_slow_and_small_ones_where_these_are_quickest(
    here: Facts, there: Facts
) -> None:
    """Behind a thin link nodes are quick, but it takes long until they have what they need."""

    def takes(asked: Candidate, need: Need) -> float:
        return 10 * (1 + need.size_bytes / KIB) if is_of(asked, there) else 30

    nodes = Answering(takes)
    both = [candidate("here", **here), candidate("there", **there)]
    sizes = (0, 100 * KIB)
    for number in range(200):
        nodes.one([both[number % 2]], MIDNIGHT_MS + number * 100, size_bytes=sizes[number // 2 % 2])

    small, large = (
        share([nodes.one(both, MIDNIGHT_MS + 20_000, size_bytes=size) for _ in range(100)], NodeId("there"))
        for size in sizes
    )

    assert small > 0.9
    assert large < 0.1


def is_of(asked: Candidate, kind: Facts) -> bool:
    return all(getattr(asked, name) == value for name, value in kind.items())


# --- What changes -------------------------------------------------------------------------------------------------


SLOWED_AT = 600
WINDOW = 50
LOOKED_AT = 200
"""Requests before and after, of which there are enough to tell shares."""


def test_a_node_that_is_three_times_slower_has_half_its_share_within_50_requests_while_others_change_too() -> None:
    for seed in range(10):
        given = changing(seed)
        before = run(given, seed).nodes[SLOWED_AT - LOOKED_AT : SLOWED_AT]
        favourite, _ = Counter(before).most_common(1)[0]

        after = run(slower(given, favourite), seed).nodes[SLOWED_AT + WINDOW :]

        assert share(after, favourite) <= share(before, favourite) / 2, seed


def run(given: World, seed: int) -> Run:
    return simulate(given, lambda traffic: Learned(traffic, seed=seed))


def changing(seed: int) -> World:
    """Every node becomes quicker or slower now and then, by up to a third."""
    chance = Random(seed)
    given = worlds(seed, requests=SLOWED_AT + WINDOW + LOOKED_AT)
    ends_ms = given.requests[-1].at_ms
    nodes = []
    for each in given.nodes:
        since_ms = (0.0, *sorted(chance.uniform(0, ends_ms) for _ in range(6)))
        speeds = tuple(each.speeds[0] * 1.33 ** chance.uniform(-1, 1) for _ in since_ms)
        nodes.append(each._replace(since_ms=since_ms, speeds=speeds))
    return World(tuple(nodes), given.requests)


def slower(given: World, node_id: NodeId) -> World:
    """From then on, that one takes three times as long as it would have."""
    at_ms = given.requests[SLOWED_AT].at_ms

    def slowed(each: Node) -> Node:
        since_ms = tuple(sorted({*each.since_ms, at_ms}))
        speeds = tuple(each.speed(since) / (3 if since >= at_ms else 1) for since in since_ms)
        return each._replace(since_ms=since_ms, speeds=speeds)

    return World(
        tuple(slowed(each) if each.candidate.node_id == node_id else each for each in given.nodes), given.requests
    )
