"""Where a call would go now, and why: every node that offers the action, and what rules it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from tests.unit.manager.test_routing_by_action import LEARNED, Site
from tests.unit.manager.words import PRICE, RESIZE, circuit, node

from canoa.errors import UnknownAction
from canoa.execution.placement import Placement
from canoa.execution.step_moves import Need
from canoa.manager.explaining import explained
from canoa.vocabulary import Layer, NodeId, Routing
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.execution.explaining import Explained
    from canoa.vocabulary import ActionName

DOWN_MS = 60_000


def asked(site: Site, action: ActionName = RESIZE, /, **said: Any) -> Explained:
    need = Need(action, site.catalogue.now_ms(), **said)
    return explained(site.catalogue, site.strategies, site.router, need)


def told(site: Site, /, **said: Any) -> list[tuple[str, str]]:
    """Every node with what is said about it, in order."""
    found = asked(site, **said)
    return [(each.node_id, each.ruled_out or each.why) for each in found.considered]


def test_whose_turn_is_next_is_said_and_not_taken() -> None:
    site = Site(node("a"), node("b"), node("c"))
    site.choose()

    for _ in range(2):
        assert told(site) == [
            ("b", "its turn is next"),
            ("c", "its turn comes after 1 other"),
            ("a", "its turn comes after 2 others"),
        ]
    assert site.choose().node_id == "b"


def test_what_rules_a_node_out_is_said() -> None:
    site = Site(
        node("down"),
        node("fit"),
        node("ill"),
        node("mute"),
        node("left", version=2, limits={RESIZE: ActionLimits()}),
        node("web", protocol=""),
    )
    site.catalogue.take([replace(site.catalogue.rows[NodeId("left")], actions=(), version=3)])
    site.clock.advance(160)
    for name in ("down", "fit", "ill"):
        site.catalogue.heard(NodeId(name))
    site.catalogue.look_for_silence()
    until_ms = site.catalogue.now_ms() + DOWN_MS
    site.catalogue.take_breakers(
        [circuit("down", down_until_ms=until_ms), circuit("ill", action=RESIZE, down_until_ms=1)]
    )

    assert told(site) == [
        ("ill", "RECOVERING: the next attempt that may fail is its trial"),
        ("fit", "its turn is next"),
        ("down", "the node is DOWN after 3 failures, for 60 s more"),
        ("left", "it left"),
        ("mute", "silent: no sign of life for too long"),
        ("web", "unreachable: it has neither a queue nor an address"),
    ]


def test_a_trial_that_is_out_is_said() -> None:
    site = Site(node("a"))
    now_ms = site.catalogue.now_ms()
    site.catalogue.take_breakers([circuit("a", down_until_ms=1, trial_ms=now_ms)])

    assert told(site) == [("a", "the node is RECOVERING: its trial is out, or waits for an attempt that may fail")]


def test_a_trial_that_is_due_is_where_the_next_attempt_goes() -> None:
    site = Site(node("a"), node("b"))
    site.catalogue.take_breakers([circuit("b", down_until_ms=1), circuit("b", action=RESIZE, down_until_ms=2)])

    assert told(site)[0] == ("b", "RECOVERING: the next attempt that may fail is its trial")
    assert site.choose().node_id == "b"
    assert told(site)[0] == ("a", "its turn is next")
    assert site.choose().node_id == "a"


def test_of_two_open_circuits_both_must_let_a_trial_through() -> None:
    site = Site(node("a"), node("b"))
    now_ms = site.catalogue.now_ms()
    site.catalogue.take_breakers(
        [circuit("b", down_until_ms=1, trial_ms=now_ms), circuit("b", action=RESIZE, down_until_ms=2)]
    )

    assert told(site)[0] == ("a", "its turn is next")


def test_what_was_learnt_is_said_in_milliseconds() -> None:
    site = Site(*(node(name, limits={RESIZE: LEARNED}) for name in "ab"))
    site.run(200, {"a": 80, "b": 10})

    found = asked(site)

    assert found.routing is Routing.LEARNED
    best, other = found.considered
    assert (best.node_id, other.node_id) == ("b", "a")
    assert best.score == pytest.approx(10, rel=0.3)
    assert best.why.endswith("ms believed, 0 out")


def test_an_action_that_nobody_ever_offered_is_unknown() -> None:
    site = Site(node("a"))

    with pytest.raises(UnknownAction):
        asked(site, PRICE)


def test_what_its_placement_leaves_out_is_said() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(Layer.EDGE, Layer.FOG), labels={"gpu": "yes"}))}
    gpu = {"gpu": "yes"}
    site = Site(
        node("cloud", layer=Layer.CLOUD, labels=gpu, limits=limits),
        node("edge", layer=Layer.EDGE, labels=gpu, limits=limits),
        node("fog", labels=gpu, limits=limits),
        node("plain", layer=Layer.EDGE, limits=limits),
    )

    assert told(site) == [
        ("edge", "its turn is next"),
        ("cloud", "the action may run in EDGE, FOG"),
        ("fog", "another layer is preferred"),
        ("plain", "it has no label gpu=yes"),
    ]


def test_a_step_is_explained_by_its_own_placement_and_not_by_its_actions() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(Layer.EDGE,)))}
    site = Site(
        node("cloud", layer=Layer.CLOUD, limits=limits),
        node("edge", layer=Layer.EDGE, limits=limits),
        node("fog", limits=limits),
    )
    site.catalogue.take_breakers([circuit("fog", down_until_ms=site.catalogue.now_ms() + DOWN_MS)])
    cloud_only = Placement(layers=(Layer.CLOUD,))

    assert told(site, placement=cloud_only) == [
        ("cloud", "its turn is next"),
        ("edge", "the step may run in CLOUD"),
        ("fog", "the step's placement does not allow it, and a circuit is open"),
    ]
    assert asked(site, placement=cloud_only).placement == cloud_only
    assert told(site)[0] == ("edge", "its turn is next")


def test_a_step_that_may_not_fail_is_no_trial_where_others_can() -> None:
    site = Site(node("a"), node("b"))
    site.catalogue.take_breakers([circuit("b", down_until_ms=1)])

    assert told(site, retries_left=1)[0] == ("b", "RECOVERING: the next attempt that may fail is its trial")
    assert told(site, retries_left=0)[0] == ("a", "its turn is next")
    assert site.router.choose(Need(RESIZE, site.catalogue.now_ms(), frozenset(), 0)).node_id == "a"  # type: ignore[union-attr]


def test_what_is_far_from_the_caller_is_said() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near="require"))}
    site = Site(
        node("far", site="recife", limits=limits),
        node("ill", site="recife", limits=limits),
        node("near", site="natal", limits=limits),
    )
    site.catalogue.take_breakers([circuit("ill", down_until_ms=1)])

    assert told(site, site="natal") == [
        ("near", "its turn is next"),
        ("far", "it is not in natal, where the input comes from"),
        ("ill", "the action's placement does not allow it, and a circuit is open"),
    ]
    assert [name for name, _ in told(site)] == ["ill", "far", "near"]


def test_what_is_far_may_have_it_where_near_is_only_preferred() -> None:
    near = Placement(near="prefer")
    site = Site(node("far", site="recife"), node("near", site="natal"))

    assert told(site, placement=near, site="natal")[1] == ("far", "it is not in natal, where the input comes from")
    assert len([why for _, why in told(site, placement=near, site="olinda") if "turn" in why]) == 2
