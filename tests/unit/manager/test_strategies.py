"""How one node of several is chosen: by what is out there, by how long answers take, by what was learnt."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.manager.words import PRICE, RESIZE

from canoa.execution.step_moves import Need
from canoa.manager.routing.learned import Learned
from canoa.manager.routing.least_loaded import LeastLoaded
from canoa.manager.routing.port import Candidate, Seen
from canoa.manager.routing.power_of_two import PowerOfTwo
from canoa.manager.routing.round_robin import RoundRobin
from canoa.manager.routing.traffic import Traffic
from canoa.vocabulary import Layer, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.manager.routing.port import Strategy

NOW_MS = 1_700_000_000_000
NOBODY: frozenset[NodeId] = frozenset()
MAKERS: dict[str, Callable[[Traffic], Strategy]] = {
    "round robin": lambda _: RoundRobin(),
    "least loaded": lambda traffic: LeastLoaded(traffic, seed=1),
    "power of two": lambda traffic: PowerOfTwo(traffic, seed=1),
    "learned": lambda traffic: Learned(traffic, seed=1),
}
STRATEGIES = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
LOOKING = pytest.mark.parametrize("make", [*MAKERS.values()][1:], ids=[*MAKERS][1:])


def candidate(name: str, **facts: float) -> Candidate:
    return Candidate(node_id=NodeId(name), layer=Layer.FOG, **facts)  # type: ignore[arg-type]


def crowd(count: int) -> list[Candidate]:
    return [candidate(f"n{number:04}") for number in range(count)]


class World:
    """One strategy, and nodes that answer at once: by the clock, after as long as they take."""

    def __init__(self, make: Callable[[Traffic], Strategy], **took_ms: int) -> None:
        self.traffic = Traffic()
        self.strategy = make(self.traffic)
        self.took_ms = dict(took_ms)
        self.failing: set[str] = set()
        self.now_ms = NOW_MS
        self.candidates = [candidate(name) for name in took_ms]

    def shares(self, times: int, *, size_bytes: int = 0) -> dict[str, float]:
        chosen = Counter(self.one(size_bytes=size_bytes) for _ in range(times))
        return {name: chosen[name] / times for name in self.took_ms}

    def one(self, *, size_bytes: int = 0) -> str:
        choice = self.strategy.choose(Need(RESIZE, self.now_ms, size_bytes=size_bytes), self.candidates, avoid=NOBODY)
        assert choice is not None
        node_id = choice.candidate.node_id
        self.traffic.sent(RESIZE, node_id, self.now_ms)
        took_ms = 1 if node_id in self.failing else self.took_ms[node_id]
        self.now_ms += took_ms
        is_ok = node_id not in self.failing
        self.traffic.ended(RESIZE, node_id, took_ms=took_ms, is_ok=is_ok, now_ms=self.now_ms)
        self.strategy.learn(
            Seen(RESIZE, choice.candidate, self.now_ms, took_ms=took_ms, is_ok=is_ok, context=choice.context)
        )
        return node_id


# --- What holds for all of them ------------------------------------------------------------------------------


@STRATEGIES
def test_nobody_that_is_to_be_avoided_is_chosen(make: Callable[[Traffic], Strategy]) -> None:
    strategy = make(Traffic())
    avoid = frozenset({NodeId("n0000"), NodeId("n0002")})

    chosen = [strategy.choose(Need(RESIZE, NOW_MS), crowd(4), avoid=avoid) for _ in range(50)]

    assert {each.candidate.node_id for each in chosen if each} == {"n0001", "n0003"}
    assert strategy.choose(Need(RESIZE, NOW_MS), crowd(1), avoid=avoid) is None


@STRATEGIES
def test_all_nodes_are_rated_and_rating_changes_nothing(make: Callable[[Traffic], Strategy]) -> None:
    one, other = World(make, a=10, b=20, c=30), World(make, a=10, b=20, c=30)
    for _ in range(20):
        rated = one.strategy.rate(Need(RESIZE, one.now_ms), one.candidates)
        assert {each.candidate.node_id for each in rated} == {"a", "b", "c"}
        assert one.one() == other.one()


@STRATEGIES
def test_a_choice_among_a_thousand_nodes_takes_at_most_100_microseconds(make: Callable[[Traffic], Strategy]) -> None:
    traffic = Traffic()
    strategy, candidates, avoid = make(traffic), crowd(1000), frozenset({NodeId("n0500")})
    for number, each in enumerate(candidates):  # all of them known
        traffic.sent(RESIZE, each.node_id, NOW_MS)
        traffic.ended(RESIZE, each.node_id, took_ms=number, now_ms=NOW_MS)
        strategy.learn(Seen(RESIZE, each, NOW_MS, took_ms=number, context=(1.0, 0.5, 0.5, 0.5)))

    def took_us(rounds: int = 500) -> float:
        began_s = time.thread_time()  # what others do on this machine is not its fault
        for number in range(rounds):
            strategy.choose(Need(RESIZE, NOW_MS + number), candidates, avoid=avoid)
        return (time.thread_time() - began_s) / rounds * 1e6

    best_us = min(took_us() for _ in range(5))
    print(f"{type(strategy).__name__}: {best_us:.1f} µs")
    assert best_us <= 100


@LOOKING
def test_whoever_is_slow_gets_less(make: Callable[[Traffic], Strategy]) -> None:
    """Of requests that overlap: the slow one still has some when the quick ones have none."""
    world = World(make, slow=400, quick=20, quicker=10)
    ends: list[tuple[int, str, tuple[float, ...]]] = []
    chosen: Counter[str] = Counter()
    for _ in range(600):
        world.now_ms += 10
        for end in [end for end in ends if end[0] <= world.now_ms]:
            ends.remove(end)
            end_ms, name, context = end
            world.traffic.ended(RESIZE, NodeId(name), took_ms=world.took_ms[name], now_ms=end_ms)
            seen = Seen(RESIZE, candidate(name), end_ms, took_ms=world.took_ms[name], context=context)
            world.strategy.learn(seen)
        choice = world.strategy.choose(Need(RESIZE, world.now_ms), world.candidates, avoid=NOBODY)
        assert choice is not None
        name = choice.candidate.node_id
        world.traffic.sent(RESIZE, NodeId(name), world.now_ms)
        ends.append((world.now_ms + world.took_ms[name], name, choice.context))
        chosen[name] += 1

    assert chosen["slow"] < 0.1 * 600


# --- By what is out -------------------------------------------------------------------------------------------


def test_the_least_loaded_is_whoever_has_least_to_do_and_then_whoever_says_so() -> None:
    traffic = Traffic()
    strategy = LeastLoaded(traffic, seed=1)
    for _ in range(3):
        traffic.sent(RESIZE, NodeId("a"), NOW_MS)
    candidates = [candidate("a"), candidate("b", load=0.9), candidate("c", load=0.1)]

    choice = strategy.choose(Need(RESIZE, NOW_MS), candidates, avoid=NOBODY)

    assert choice is not None
    assert (choice.candidate.node_id, choice.why) == (
        "c",
        "least loaded of 3: 0 out and 10% load; b 0 out and 90% load, a 3 out",
    )
    assert strategy.rate(Need(RESIZE, NOW_MS), candidates)[0].candidate.node_id == "c"


def test_what_is_out_is_forgotten_after_a_while_since_others_may_hear_its_end() -> None:
    traffic = Traffic()
    traffic.ended(RESIZE, NodeId("a"), took_ms=100, now_ms=NOW_MS)
    for _ in range(10):
        traffic.sent(RESIZE, NodeId("a"), NOW_MS)

    assert traffic.out(NodeId("a"), NOW_MS) == 10
    assert 9 < traffic.out(NodeId("a"), NOW_MS + 100) < 10
    assert traffic.out(NodeId("a"), NOW_MS + 60_000) < 0.01


def test_ends_of_what_others_sent_make_nobody_owe_less_than_nothing() -> None:
    traffic = Traffic()
    for _ in range(5):
        traffic.ended(RESIZE, NodeId("a"), took_ms=10, now_ms=NOW_MS)

    assert traffic.out(NodeId("a"), NOW_MS) == 0


def test_a_node_is_at_least_as_slow_as_the_oldest_answer_that_it_owes() -> None:
    traffic = Traffic()
    node_id = NodeId("a")
    traffic.sent(RESIZE, node_id, NOW_MS)
    traffic.ended(RESIZE, node_id, took_ms=10, now_ms=NOW_MS + 10)
    assert traffic.out_and_oldest_ms(RESIZE, node_id, NOW_MS + 5_000) == (0, 0)

    for at_ms in (5_000, 5_100, 5_200):
        traffic.sent(RESIZE, node_id, NOW_MS + at_ms)
    traffic.ended(RESIZE, node_id, took_ms=200, now_ms=NOW_MS + 5_200)

    _, oldest_ms = traffic.out_and_oldest_ms(RESIZE, node_id, NOW_MS + 5_600)
    assert oldest_ms == 500
    assert traffic.peak_ms(RESIZE, node_id, NOW_MS + 5_600) == 500


def test_a_peak_rises_at_once_and_comes_down_slowly() -> None:
    traffic = Traffic()
    node_id = NodeId("a")
    for at_ms, took_ms in ((0, 10), (10, 500), (20, 10)):
        traffic.ended(RESIZE, node_id, took_ms=took_ms, now_ms=NOW_MS + at_ms)

    assert traffic.peak_ms(RESIZE, node_id, NOW_MS + 20) == pytest.approx(500, rel=0.01)
    assert traffic.peak_ms(RESIZE, node_id, NOW_MS + 20_000) == pytest.approx(500 / 7.39, rel=0.01)
    assert traffic.peak_ms(PRICE, node_id, NOW_MS) is None


def test_a_node_that_is_gone_is_forgotten() -> None:
    traffic = Traffic()
    learned = Learned(traffic, seed=1)
    world = World(lambda _: learned, a=10, b=10)
    world.shares(20)
    traffic.sent(RESIZE, NodeId("a"), NOW_MS)

    for forget in (traffic.forget, learned.forget):
        forget(NodeId("a"))

    assert traffic.out(NodeId("a"), NOW_MS) == 0
    assert "a" not in learned._own


# --- By what was learnt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["power of two", "learned"])
def test_a_node_where_all_fail_at_once_does_not_get_them_all(name: str) -> None:
    world = World(MAKERS[name], good=50, bad=50, fair=50)
    world.shares(60)
    world.failing.add("bad")
    world.shares(20)

    assert world.shares(100)["bad"] < 0.25


def test_the_quickest_gets_most_and_the_others_are_tried_now_and_then() -> None:
    world = World(MAKERS["learned"], quick=10, slow=40, slower=80)
    world.shares(100)

    shares = world.shares(2_000)

    assert shares["quick"] > 0.9
    assert shares["slow"] > 0


def test_a_node_that_becomes_slow_is_left_and_found_again_when_it_is_not() -> None:
    world = World(MAKERS["learned"], a=10, b=15)
    assert world.shares(200)["a"] > 0.7

    world.took_ms["a"] = 200
    world.shares(20)
    assert world.shares(200)["a"] < 0.1

    world.took_ms["a"] = 10
    world.shares(10_000)
    assert world.shares(200)["a"] > 0.5


def test_a_large_input_is_no_fault_of_its_node() -> None:
    """Sizes are the action's matter: whoever got large ones looks slow to whoever does not know that."""
    learned = Learned(Traffic(), seed=1)
    a, b = candidate("a"), candidate("b")
    for number in range(400):
        each, size = ((a, 64 * 1024), (b, 1024))[number % 2]
        large, small = (Need(RESIZE, NOW_MS, size_bytes=size), Need(RESIZE, NOW_MS, size_bytes=2048))
        for asked in (large, small):
            choice = learned.choose(asked, [each], avoid=NOBODY)
            assert choice is not None
            took_ms = round(10 * (asked.size_bytes / 1024) ** 0.8)
            learned.learn(Seen(RESIZE, each, NOW_MS, took_ms=took_ms, context=choice.context))

    first, second = learned.rate(Need(RESIZE, NOW_MS, size_bytes=2048), [a, b])

    assert first.score == pytest.approx(second.score, rel=0.25)


def test_one_knows_why_a_node_was_chosen() -> None:
    world = World(MAKERS["learned"], a=10)
    world.shares(50)

    choice = world.strategy.choose(Need(RESIZE, world.now_ms), world.candidates, avoid=NOBODY)
    (rated,) = world.strategy.rate(Need(RESIZE, world.now_ms), world.candidates)

    assert choice is not None
    assert choice.why.startswith("learned: 1")
    assert choice.why.endswith("ms, the best guess of 1")
    assert rated.why.endswith("believed, 0 out")
    assert rated.score == pytest.approx(10, rel=0.2)


# --- What must not happen -----------------------------------------------------------------------------------------


@STRATEGIES
def test_whatever_fails_for_ever_a_node_is_still_chosen(make: Callable[[Traffic], Strategy]) -> None:
    world = World(make, a=10, b=10)
    world.failing |= {"a", "b"}

    shares = world.shares(3_000)

    assert sum(shares.values()) == 1
    assert len(world.strategy.rate(Need(RESIZE, world.now_ms), world.candidates)) == 2


@pytest.mark.parametrize("name", ["power of two", "learned"])
def test_a_new_node_where_all_fail_does_not_get_them_all(name: str) -> None:
    world = World(MAKERS[name], good=50, fair=50, fine=50, new=50)
    world.failing.add("new")
    world.shares(40)

    assert world.shares(200)["new"] < 0.2


@LOOKING
def test_a_crowd_after_a_quiet_time_is_spread(make: Callable[[Traffic], Strategy]) -> None:
    world = World(make, a=20, b=20)
    for _ in range(10):
        world.one()
        world.now_ms += 60_000
    chosen: Counter[str] = Counter()
    for _ in range(200):
        choice = world.strategy.choose(Need(RESIZE, world.now_ms), world.candidates, avoid=NOBODY)
        assert choice is not None
        world.traffic.sent(RESIZE, choice.candidate.node_id, world.now_ms)
        chosen[choice.candidate.node_id] += 1

    assert min(chosen["a"], chosen["b"]) > 40


@pytest.mark.parametrize("name", ["power of two", "learned"])
def test_a_long_step_that_is_out_says_nothing_about_a_quick_action(name: str) -> None:
    world = World(MAKERS[name], big=20, small=500)
    world.shares(100)
    world.traffic.ended(PRICE, NodeId("big"), took_ms=300_000, now_ms=world.now_ms)
    world.traffic.sent(PRICE, NodeId("big"), world.now_ms)
    world.now_ms += 120_000

    assert world.shares(100)["big"] > 0.6
