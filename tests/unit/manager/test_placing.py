"""Which nodes come into question: by layer, label and site, and by how each layer is doing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET
from tests.unit.manager.test_routing_by_action import Site
from tests.unit.manager.words import RESIZE, circuit, node, written

from canoa.errors import SettingError
from canoa.execution.placement import Placement, parse_labels, read_placement
from canoa.execution.step_moves import Need, Verdict
from canoa.manager.osmosis import HOLD_MS
from canoa.manager.router import TRIAL_WHY
from canoa.store.routed_port import Moved
from canoa.vocabulary import Layer, NodeId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice

EDGE, FOG, CLOUD = Layer.EDGE, Layer.FOG, Layer.CLOUD
DOWNHILL = Placement(layers=(EDGE, FOG, CLOUD))


def town(placement: Placement | None, **facts: dict[str, Any]) -> Site:
    """One node per layer, and what is said of them besides."""
    limits = {RESIZE: ActionLimits(placement=placement or UNSET)}
    layers = {"edge": EDGE, "fog": FOG, "cloud": CLOUD}
    return Site(*(node(name, layer=layer, limits=limits, **facts.get(name, {})) for name, layer in layers.items()))


def choose(site: Site, /, **asked: Any) -> Choice | None:
    return site.router.choose(Need(RESIZE, site.catalogue.now_ms(), **asked))


def chosen(site: Site, /, *, times: int = 6, **asked: Any) -> list[str | None]:
    choices = [choose(site, **asked) for _ in range(times)]
    return [None if each is None else each.node_id for each in choices]


# --- Layers and labels ------------------------------------------------------------------------------------------


def test_without_a_placement_all_layers_are_alike() -> None:
    assert set(chosen(town(None))) == {"edge", "fog", "cloud"}


def test_the_first_layer_that_can_gets_it() -> None:
    assert set(chosen(town(DOWNHILL))) == {"edge"}


def test_a_layer_that_is_not_named_gets_nothing() -> None:
    site = town(Placement(layers=(FOG,)))
    site.catalogue.take_breakers([circuit("fog", down_until_ms=site.catalogue.now_ms() + 60_000)])

    assert choose(site) is None


def test_a_step_may_say_otherwise_than_its_action() -> None:
    assert set(chosen(town(DOWNHILL), placement=Placement(layers=(CLOUD,)))) == {"cloud"}


def test_a_node_must_have_every_label() -> None:
    site = town(
        Placement(labels={"gpu": "yes", "disk": "ssd"}),
        edge={"labels": {"gpu": "yes"}},
        fog={"labels": {"gpu": "yes", "disk": "ssd", "more": "too"}},
    )

    assert set(chosen(site)) == {"fog"}


def test_a_layer_whose_nodes_all_had_the_step_is_passed_over() -> None:
    choice = choose(town(DOWNHILL), avoid=frozenset({NodeId("edge")}))

    assert choice is not None
    assert choice.node_id == "fog"


def test_only_nodes_that_it_allows_get_a_trial() -> None:
    site = town(Placement(layers=(FOG,)))
    site.catalogue.take_breakers([circuit("edge", down_until_ms=1), circuit("fog", down_until_ms=2)])

    choice = choose(site)

    assert choice is not None
    assert (choice.node_id, choice.why) == ("fog", TRIAL_WHY)


# --- Migration ----------------------------------------------------------------------------------------------------


def test_when_the_edge_is_down_steps_move_to_the_fog_and_back_when_it_recovers() -> None:
    site = town(DOWNHILL)
    site.catalogue.take_breakers([circuit("edge", down_until_ms=site.catalogue.now_ms() + 60_000)])
    assert set(chosen(site)) == {"fog"}

    site.catalogue.take_breakers([circuit("edge", failures=0)])
    assert set(chosen(site)) == {"edge"}


def test_what_is_too_much_for_the_edge_goes_to_the_fog_and_then_to_the_cloud() -> None:
    site = town(Placement(layers=(EDGE, FOG, CLOUD), spill_queue=2))

    went = chosen(site, times=9)
    last = choose(site)

    assert went == ["edge"] * 3 + ["fog"] * 3 + ["cloud"] * 3
    assert last is not None
    assert last.why.endswith(", no layer has room")


def test_a_choice_says_why_it_moved() -> None:
    site = town(Placement(layers=(EDGE, FOG), spill_queue=2))
    chosen(site, times=3)

    choice = choose(site)

    assert choice is not None
    assert choice.why == "the only node that may have it now, since EDGE has enough to do"


def test_when_there_is_room_at_the_edge_again_steps_move_back() -> None:
    site = town(Placement(layers=(EDGE, FOG), spill_queue=2))
    assert chosen(site, times=4)[-1] == "fog"

    for _ in range(3):
        site.answered("edge", took_ms=10)

    assert chosen(site, times=1) == ["edge"]


def test_a_slow_edge_gets_nothing_for_a_while() -> None:
    site = town(Placement(layers=(EDGE, FOG), spill_p95_s=0.1))
    for _ in range(20):
        chosen(site, times=1)
        site.clock.advance(0.5)
        site.answered("edge", took_ms=500)

    slow = choose(site)
    assert slow is not None
    assert (slow.node_id, slow.why.partition(", ")[2]) == ("fog", "since EDGE is slow")

    site.clock.advance(HOLD_MS / 1000 + 31)  # by then nobody remembers how slow it was
    assert chosen(site, times=1) == ["edge"]


def test_how_long_a_slow_edge_is_left_alone_does_not_depend_on_what_was_slow_before() -> None:
    site = town(Placement(layers=(EDGE, FOG), spill_p95_s=0.1))
    for _ in range(12):
        chosen(site, times=1)
        site.clock.advance(0.5)
        site.answered("edge", took_ms=500)
    site.clock.advance(0.5)
    assert chosen(site, times=1) == ["fog"]

    site.clock.advance(HOLD_MS / 1000)

    assert chosen(site, times=1) == ["edge"]


def test_what_one_placement_found_is_no_other_s() -> None:
    """Each has its bounds, and only it finds out that they are kept again."""
    site = town(Placement(layers=(EDGE, FOG), spill_queue=50))
    hasty = Placement(layers=(EDGE, FOG), spill_p95_s=0.1)
    for _ in range(12):
        chosen(site, times=1, placement=hasty)
        site.clock.advance(0.5)
        site.answered("edge", took_ms=500)
    site.clock.advance(0.5)

    assert chosen(site, times=1, placement=hasty) == ["fog"]
    assert set(chosen(site)) == {"edge"}


def test_a_task_that_was_cancelled_leaves_room() -> None:
    site = town(Placement(layers=(EDGE, FOG), spill_queue=2))
    chosen(site, times=3)
    edge = NodeId("edge")

    called_off = Moved(verdict=Verdict.TAKEN, freed=((edge, RESIZE),) * 3)
    site.router.ended(written(called_off, site.catalogue.now_ms()))

    assert chosen(site, times=1) == ["edge"]


def test_steps_with_different_placements_take_turns_over_all_their_nodes() -> None:
    nodes = [node(f"{layer.value}-{number}", layer=layer) for layer in (EDGE, CLOUD) for number in "12"]
    site = Site(*nodes)
    went: Counter[str | None] = Counter()
    for _ in range(20):
        for layer in (EDGE, CLOUD):
            went.update(chosen(site, times=1, placement=Placement(layers=(layer,))))

    assert set(went.values()) == {10}


# --- Who says it ----------------------------------------------------------------------------------------------------


def test_a_node_that_says_nothing_does_not_lift_what_others_say() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(EDGE,)))}
    site = Site(
        node("edge", layer=EDGE, limits=limits, registered_ms=1),
        node("stranger", layer=CLOUD, registered_ms=2),
    )

    assert set(chosen(site)) == {"edge"}


def test_nodes_that_a_placement_forbids_do_not_take_the_trials_of_those_it_allows() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(CLOUD,)))}
    many = [node(f"edge-{number:02}", layer=EDGE, limits=limits) for number in range(20)]
    site = Site(*many, node("cloud", layer=CLOUD, limits=limits))
    site.catalogue.take_breakers([circuit(str(row.node_id), down_until_ms=1) for row in many])
    site.catalogue.take_breakers([circuit("cloud", down_until_ms=2)])

    assert chosen(site, times=1) == ["cloud"]


def test_a_trial_keeps_to_the_site_that_is_required() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near="require"))}
    site = Site(node("near", site="natal", limits=limits), node("far", site="recife", limits=limits))
    site.catalogue.take_breakers([circuit("far", down_until_ms=1)])

    assert set(chosen(site, near=(NodeId("near"),))) == {"near"}


# --- Where the data is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("near", "goes_to"), [("prefer", "natal"), ("require", "natal"), ("", "any")])
def test_a_step_runs_where_its_input_comes_from(near: Any, goes_to: str) -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near=near))}
    site = Site(
        *(node(f"{place}-{number}", site=place, limits=limits) for place in ("natal", "recife") for number in "12")
    )

    went = {str(each).partition("-")[0] for each in chosen(site, near=(NodeId("natal-1"),))}

    assert went == ({"natal"} if goes_to == "natal" else {"natal", "recife"})


def test_the_first_steps_run_where_their_caller_stands() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near="require"))}
    site = Site(node("natal", site="natal", limits=limits), node("recife", site="recife", limits=limits))

    assert set(chosen(site, site="natal")) == {"natal"}
    assert set(chosen(site, site="elsewhere")) == {None}
    assert set(chosen(site)) == {"natal", "recife"}  # a caller that says nothing


def test_what_a_step_gets_from_others_counts_and_not_where_the_caller_stands() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near="require"))}
    site = Site(node("natal", site="natal", limits=limits), node("recife", site="recife", limits=limits))

    assert set(chosen(site, near=(NodeId("recife"),), site="natal")) == {"recife"}


def test_a_trial_is_near_to_the_caller_where_it_must_be() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near="require"))}
    site = Site(node("natal", site="natal", limits=limits), node("recife", site="recife", limits=limits))
    site.catalogue.take_breakers([circuit("recife", down_until_ms=1)])

    assert set(chosen(site, site="natal")) == {"natal"}
    trial = choose(site, site="recife")
    assert trial is not None
    assert (trial.node_id, trial.why) == ("recife", TRIAL_WHY)


@pytest.mark.parametrize(("near", "can"), [("prefer", True), ("require", False)])
def test_where_nobody_is_near_it_goes_far_unless_that_is_forbidden(near: Any, can: bool) -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(near=near))}
    site = Site(node("far", site="recife", limits=limits), node("source", "shop.other", site="natal"))  # type: ignore[arg-type]

    choice = choose(site, near=(NodeId("source"),))

    assert (choice is not None) is can


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layers": ["mist"]}, "mist"),
        ({"layers": ["edge", "EDGE"]}, "once"),
        ({"layers": "edge"}, "layers"),
        ({"labels": ["gpu=yes"]}, "by name"),
        ({"labels": {"gpu": True}}, "in quotes"),
        ({"queue": 3}, "spill_queue"),
        ({"spill_queue": 0}, "above 0"),
        ({"spill_p95_s": float("nan")}, "above 0"),
        ({"labels": {"": "x"}}, "label"),
        ({"labels": {"gpu": 1}}, "in quotes"),
        ({"near": "far"}, "near"),
        (["edge"], "object"),
    ],
)
def test_a_placement_that_cannot_be_is_refused_with_the_reason(given: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        read_placement(given)


def test_layers_may_be_written_as_people_do() -> None:
    with pytest.raises(SettingError, match="above 0"):
        Placement(spill_queue="5")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="label"):
        Placement(labels={"gpu": 1})  # type: ignore[dict-item]
    assert Placement(layers=["edge", "Fog"]).layers == (EDGE, FOG)  # type: ignore[arg-type]
    assert read_placement({"layers": ["EDGE"]}).layers == (EDGE,)


def test_labels_are_written_name_value() -> None:
    assert parse_labels("gpu=yes,disk = ssd") == {"gpu": "yes", "disk": "ssd"}
    assert parse_labels("") == {}
    for wrong in ("gpu", "gpu=", "=yes"):
        with pytest.raises(SettingError, match="name=value"):
            parse_labels(wrong)
