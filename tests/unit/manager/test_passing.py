"""Who was passed over for an attempt, and why, goes with it into its story."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.unit.manager.test_routing_by_action import Site
from tests.unit.manager.words import RESIZE, circuit, node

from canoa.execution.placement import Placement
from canoa.execution.step_moves import Need
from canoa.manager.passing import FEW, HOLDS_MS, MAX_TOLD
from canoa.vocabulary import Layer, NodeId

DOWN_MS = 60_000
EDGE_FIRST = Placement(layers=(Layer.EDGE, Layer.FOG))


def passed(site: Site, /, **said: Any) -> tuple[str, ...]:
    choice = site.router.choose(Need(RESIZE, site.catalogue.now_ms(), **said))
    assert choice is not None
    return choice.passed


def test_where_any_node_could_have_had_it_nobody_was_passed_over() -> None:
    assert passed(Site(node("a"), node("b"))) == ()


def test_what_ruled_each_of_the_others_out_is_told_and_who_left_is_not_missed() -> None:
    site = Site(node("down"), node("fit"), node("left"), node("mute"), node("web", protocol=""))
    site.catalogue.take([replace(site.catalogue.rows[NodeId("left")], actions=(), version=3)])
    site.clock.advance(160)
    for name in ("down", "fit"):
        site.catalogue.heard(NodeId(name))
    site.catalogue.look_for_silence()
    site.catalogue.take_breakers([circuit("down", down_until_ms=site.catalogue.now_ms() + DOWN_MS)])

    assert passed(site) == (
        "down: the circuit of the node is open",
        "mute: silent: no sign of life for too long",
        "web: unreachable: it has neither a queue nor an address",
    )


def test_what_its_placement_ruled_out_is_told() -> None:
    site = Site(
        node("cloud", layer=Layer.CLOUD), node("edge", layer=Layer.EDGE), node("fog", layer=Layer.FOG, site="natal")
    )

    assert passed(site, placement=EDGE_FIRST) == (
        "cloud: the step may run in EDGE, FOG",
        "fog: another layer is preferred",
    )
    assert passed(site, placement=Placement(near="require"), site="natal") == (
        "cloud: it is not in natal, where the input comes from",
        "edge: it is not in natal, where the input comes from",
    )
    assert passed(site) == ()


def test_a_node_that_had_an_attempt_of_it_before_is_told() -> None:
    site = Site(node("a"), node("b"))

    assert passed(site, avoid=frozenset({NodeId("a")})) == ("a: it had an attempt before",)
    assert passed(site) == ()


def test_of_many_a_few_are_told() -> None:
    site = Site(node("a", layer=Layer.EDGE), *(node(f"fog-{number}", layer=Layer.FOG) for number in range(100)))

    told = passed(site, placement=EDGE_FIRST)

    assert len(told) == MAX_TOLD + 1
    assert told[-1] == "some others"


def test_it_is_told_anew_when_somebody_changes() -> None:
    site = Site(node("edge", layer=Layer.EDGE), node("fog", layer=Layer.FOG))
    assert passed(site, placement=EDGE_FIRST) == ("fog: another layer is preferred",)

    site.catalogue.take([replace(site.catalogue.rows[NodeId("edge")], actions=(), version=9)])

    assert passed(site, placement=EDGE_FIRST) == ()


def test_words_about_who_is_away_are_a_moment_old_at_most() -> None:
    site = Site(node("fit"), node("mute"))
    site.clock.advance(160)
    site.catalogue.heard(NodeId("fit"))
    site.catalogue.look_for_silence()
    assert passed(site) == ("mute: silent: no sign of life for too long",)

    site.catalogue.take([replace(site.catalogue.rows[NodeId("mute")], actions=(), version=9)])
    site.clock.advance(HOLDS_MS / 1000)

    assert passed(site) == ()


def test_what_is_told_of_one_attempt_is_not_told_of_another_that_avoids_the_same_node_for_another_reason() -> None:
    site = Site(node("a"), node("b"))
    site.router.inboxes.limit = 1
    assert passed(site, avoid=frozenset({NodeId("a")})) == ("a: it had an attempt before",)
    site.router.inboxes.end_look({NodeId("a"): 5})

    [why] = passed(site)

    assert why.startswith("a: full: 5 steps are out at it")


def test_one_that_is_avoided_and_away_is_told_once() -> None:
    site = Site(node("fit"), node("mute"))
    site.clock.advance(160)
    site.catalogue.heard(NodeId("fit"))
    site.catalogue.look_for_silence()

    assert passed(site, avoid=frozenset({NodeId("mute")})) == ("mute: it had an attempt before",)


def test_of_many_that_are_to_be_avoided_the_first_are_told() -> None:
    nodes = [node(f"n-{number:03}") for number in range(FEW + 10)]
    site = Site(*nodes)

    told = passed(site, avoid=frozenset(each.node_id for each in nodes[:-1]))

    assert told[0] == "n-000: it had an attempt before"
    assert len(told) == MAX_TOLD + 1
