"""A choice among nodes: one after the other over those that can, a trial where a circuit may close, quick with many."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.unit.manager.words import PRICE, RESIZE, circuit, node

from canoa.execution.health import Sign
from canoa.execution.step_moves import Need
from canoa.manager.catalogue import Catalogue, Presence
from canoa.manager.node_settings import NodeSettings
from canoa.manager.router import AGAIN_WHY, TRIAL_WHY, Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.watching import Watching
from canoa.testing import VirtualClock
from canoa.vocabulary import ActionName, NodeId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice
    from canoa.store.routed_port import HealthNote, NodeRow

DOWN_MS = 60_000


class Site:
    """A catalogue and a router, at a time that the test moves."""

    def __init__(self, *rows: NodeRow) -> None:
        self.clock = VirtualClock()
        self.catalogue = Catalogue(NodeSettings(), self.clock)
        self.notes: list[HealthNote] = []
        settings = self.catalogue.settings.breaker
        self.watching = Watching(self.clock)
        self.router = Router(
            self.catalogue, Strategies(), settings=settings, watching=self.watching, note=self.notes.append
        )
        self.register(*rows)

    @property
    def now_ms(self) -> int:
        return self.catalogue.now_ms()

    def register(self, *rows: NodeRow) -> None:
        self.catalogue.take(rows)
        for row in rows:
            self.catalogue.heard(row.node_id)

    def choose(self, *avoid: str, action: ActionName = RESIZE, retries_left: int | None = None) -> Choice | None:
        avoided = frozenset(map(NodeId, avoid))
        return self.router.choose(Need(action, self.now_ms, avoided, retries_left))

    def chosen(self, *avoid: str, times: int = 1) -> list[str | None]:
        choices = [self.choose(*avoid) for _ in range(times)]
        return [None if choice is None else choice.node_id for choice in choices]


@pytest.fixture
def site() -> Site:
    return Site(node("a"), node("b"), node("c"))


def test_steps_go_to_one_node_after_the_other(site: Site) -> None:
    assert site.chosen(times=6) == ["a", "b", "c", "a", "b", "c"]


def test_a_node_that_had_the_step_is_avoided_unless_nobody_else_can(site: Site) -> None:
    assert set(site.chosen("a", "b", times=3)) == {"c"}
    again = site.choose("a", "b", "c")
    assert again is not None
    assert again.why == AGAIN_WHY


def test_nobody_offers_it_nobody_is_chosen(site: Site) -> None:
    assert site.choose(action=PRICE) is None
    assert not site.router.is_known(PRICE)


def test_a_choice_says_the_limits_of_its_node() -> None:
    site = Site(node("a", limits={RESIZE: ActionLimits(timeout=5_000, retry=1)}))

    choice = site.choose()

    assert choice is not None
    assert (choice.timeout_s, choice.retries, choice.why) == (5.0, 1, "the only node that may have it now")


def test_a_node_without_limits_has_those_of_the_publication(site: Site) -> None:
    choice = site.choose()

    assert choice is not None
    assert (choice.timeout_s, choice.retries) == (30.0, 3)


def test_what_a_node_offered_before_it_left_stays_known(site: Site) -> None:
    gone = [node(name, version=2, limits={RESIZE: ActionLimits()}) for name in ("a", "b", "c")]
    site.register(*(replace(row, actions=()) for row in gone))

    assert site.choose() is None
    assert site.router.is_known(RESIZE)


def test_a_silent_node_is_out_of_routing_until_it_is_heard_again(site: Site) -> None:
    site.clock.advance(140)
    site.catalogue.heard(NodeId("b"))
    site.clock.advance(20)

    assert site.catalogue.look_for_silence() == {"a", "c"}
    assert set(site.chosen(times=4)) == {"b"}
    assert site.catalogue.counted() == {("FOG", Presence.SILENT): 2, ("FOG", "OK"): 1}

    site.catalogue.heard(NodeId("a"))
    assert set(site.chosen(times=4)) == {"a", "b"}


def test_an_older_version_of_a_node_changes_nothing(site: Site) -> None:
    site.register(node("a", PRICE, version=5))
    site.register(node("a", RESIZE, version=4))

    assert set(site.chosen(times=4)) == {"b", "c"}


# --- Circuits ------------------------------------------------------------------------------------------------


def test_nothing_is_sent_where_a_circuit_is_open(site: Site) -> None:
    until_ms = site.now_ms + DOWN_MS
    site.catalogue.take_breakers(
        [circuit("a", down_until_ms=until_ms), circuit("b", action=RESIZE, down_until_ms=until_ms)]
    )

    assert set(site.chosen(times=6)) == {"c"}
    assert site.catalogue.counted() == {("FOG", "DOWN"): 1, ("FOG", "OK"): 2}


def test_some_failures_do_not_keep_work_away(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", failures=2)])

    assert set(site.chosen(times=3)) == {"a", "b", "c"}


def test_a_circuit_of_one_action_does_not_concern_another() -> None:
    site = Site(node("a", RESIZE, PRICE))
    site.catalogue.take_breakers([circuit("a", action=RESIZE, down_until_ms=site.now_ms + DOWN_MS)])

    assert site.choose() is None
    assert site.choose(action=PRICE) is not None


def test_a_circuit_that_was_open_long_enough_gets_one_trial(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms + DOWN_MS)])
    site.clock.advance(DOWN_MS / 1000)

    first, rest = site.choose(), site.chosen(times=6)

    assert first is not None
    assert (first.node_id, first.why) == ("a", TRIAL_WHY)
    assert set(rest) == {"b", "c"}
    assert [(note.node_id, note.sign, note.is_about_node) for note in site.notes] == [("a", Sign.TRIAL, True)]


def test_a_trial_that_nobody_answers_is_tried_again_later(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms)])
    assert site.chosen() == ["a"]

    site.clock.advance(DOWN_MS / 1000)

    assert site.chosen() == ["a"]


def test_a_step_that_cannot_be_tried_again_is_a_trial_only_where_nobody_healthy_is(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms)])

    healthy = site.choose(retries_left=0)
    last_resort = site.choose("b", "c", retries_left=0)

    assert healthy is not None
    assert healthy.node_id in ("b", "c")
    assert last_resort is not None
    assert (last_resort.node_id, last_resort.why) == ("a", TRIAL_WHY)


def test_a_node_that_allows_no_retries_gets_its_trial_from_a_step_that_has_some() -> None:
    site = Site(node("a", limits={RESIZE: ActionLimits(retry=0)}), node("b"))
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms)])

    assert site.chosen(times=3) == ["b", "b", "b"]
    tried = site.choose(retries_left=1)

    assert tried is not None
    assert tried.node_id == "a"


def test_a_trial_that_another_manager_sent_is_not_sent_twice(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms, trial_ms=site.now_ms)])

    assert "a" not in site.chosen(times=6)


def test_a_closed_circuit_lets_work_in_again(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms + DOWN_MS)])
    site.catalogue.take_breakers([circuit("a", failures=0)])

    assert set(site.chosen(times=3)) == {"a", "b", "c"}


def test_of_many_threads_one_gets_the_trial(site: Site) -> None:
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.now_ms)])
    found: list[str | None] = []
    threads = [threading.Thread(target=lambda: found.extend(site.chosen(times=200))) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Counter(found)["a"] == 1
    assert len(site.notes) == 1


# --- Speed ---------------------------------------------------------------------------------------------------


def choice_us(site: Site, *, rounds: int, avoid: frozenset[NodeId]) -> float:
    now_ms = site.now_ms
    began_s = time.perf_counter()
    for _ in range(rounds):
        site.router.choose(Need(RESIZE, now_ms, avoid))
    return (time.perf_counter() - began_s) / rounds * 1e6


@pytest.mark.parametrize("down", [0, 300, 1000])
def test_a_choice_among_a_thousand_nodes_takes_at_most_50_microseconds(down: int) -> None:
    site = Site(*(node(f"n{number:04}") for number in range(1000)))
    until_ms = site.now_ms + DOWN_MS
    site.catalogue.take_breakers([circuit(f"n{number:04}", down_until_ms=until_ms) for number in range(down)])

    took_us = min(choice_us(site, rounds=1000, avoid=frozenset({NodeId("n0500")})) for _ in range(5))

    print(f"one choice among 1,000 nodes, {down} of them down: {took_us:.1f} µs")
    assert took_us <= 50
