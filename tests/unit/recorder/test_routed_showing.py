"""What the desk tells about steps and nodes, from the managers' rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from canoa.execution.health import BreakerSettings
from canoa.execution.link_budget import LinkUse
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import AttemptRow, StepState
from canoa.recorder import routed_showing as showing
from canoa.store.routed_port import BreakerRow, NodeRow, StepRow
from canoa.vocabulary import ActionName, Layer, NodeId, TaskId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.recorder.routed_views import NodeView

NOW_MS = 1_750_000_000_000
FETCH = ActionName("continuum.fetch")
PLAN = Plan(name="power-factor", steps=(Step(name="fetch", action=FETCH),))
SETTINGS = BreakerSettings(max_failures=3, down_ms=60_000)


def step(*attempts: AttemptRow, ready_ms: int | None = NOW_MS) -> StepRow:
    return StepRow(
        task_id=TaskId("t"),
        step=0,
        name="fetch",
        action=FETCH,
        state=StepState.ENDED,
        outcome=Outcome.OK,
        ready_ms=ready_ms,
        attempts=attempts,
    )


def attempt(sent_ms: int, started_ms: int | None = None, ended_ms: int | None = None, number: int = 1) -> AttemptRow:
    return AttemptRow(
        attempt=number,
        node_id=NodeId("edge-1"),
        why="",
        sent_ms=NOW_MS + sent_ms,
        started_ms=None if started_ms is None else NOW_MS + started_ms,
        ended_ms=None if ended_ms is None else NOW_MS + ended_ms,
    )


def times(row: StepRow) -> list[tuple[int | None, int | None, int | None]]:
    return [(each.queued_ms, each.travelled_ms, each.ran_ms) for each in showing.step(row, PLAN).attempts]


def test_an_attempt_queued_travelled_and_ran() -> None:
    assert times(step(attempt(2, 7, 38))) == [(2, 5, 31)]


def test_a_later_attempt_queued_since_the_one_before_it_ended() -> None:
    assert times(step(attempt(2, 7, 38), attempt(138, 140, 150, number=2))) == [(2, 5, 31), (100, 2, 10)]


def test_the_pause_before_the_last_attempt_is_no_queue() -> None:
    retried = step(attempt(2, 7, 38), attempt(138, 140, 150, number=2), ready_ms=NOW_MS + 130)

    assert times(retried) == [(None, 5, 31), (8, 2, 10)]


def test_what_is_not_known_is_not_made_up() -> None:
    assert times(step(attempt(2), ready_ms=None)) == [(None, None, None)]


def test_a_node_whose_clock_is_behind_did_not_start_before_it_was_sent() -> None:
    assert times(step(attempt(5_000, 3_000, 3_010))) == [(5_000, 0, 10)]


def test_who_was_passed_over_for_an_attempt_is_told_with_it() -> None:
    passed = ("edge-2: silent: no sign of life for too long", "some others")
    row = step(msgspec.structs.replace(attempt(2), passed=passed), attempt(5, number=2))

    assert [each.passed for each in showing.step(row, PLAN).attempts] == [list(passed), []]


# --- Nodes ----------------------------------------------------------------------------------------------


def node(node_id: str, *, layer: Layer = Layer.FOG, seen_ms: int = NOW_MS, left: bool = False) -> NodeRow:
    return NodeRow(
        node_id=NodeId(node_id),
        layer=layer,
        actions=() if left else (FETCH,),
        limits={FETCH: ActionLimits(timeout=5_000, retry=1)},
        seen_ms=seen_ms,
        registered_ms=NOW_MS,
    )


def breaker(node_id: str, *, action: str = "", failures: int, down_until_ms: int = 0) -> BreakerRow:
    return BreakerRow(node_id=NodeId(node_id), action=action, failures=failures, down_until_ms=down_until_ms)


def shown(*rows: NodeRow, breakers: tuple[BreakerRow, ...] = ()) -> list[NodeView]:
    queued = {NodeId("gw-7"): 3}
    return showing.nodes(rows, breakers, queued, now_ms=NOW_MS, settings=SETTINGS, silent_after_s=150, max_queued=4)


def test_nodes_stand_from_the_edge_to_the_cloud() -> None:
    rows = [node("a", layer=Layer.CLOUD), node("c", layer=Layer.EDGE), node("b", layer=Layer.EDGE), node("d")]

    assert [each.id for each in shown(*rows)] == ["b", "c", "d", "a"]


def test_a_node_is_here_silent_or_left() -> None:
    rows = [node("a"), node("b", seen_ms=NOW_MS - 150_001), node("c", left=True)]

    assert [each.state for each in shown(*rows)] == ["here", "silent", "left"]


def test_a_node_at_which_as_many_steps_are_out_as_may_be_is_full_and_nobody_counts_on_it() -> None:
    rows = [node("a"), node("b"), node("c", left=True)]
    queued = {NodeId("a"): 4, NodeId("b"): 3, NodeId("c"): 4}

    found = showing.nodes(rows, (), queued, now_ms=NOW_MS, settings=SETTINGS, silent_after_s=150, max_queued=4)

    assert [each.state for each in found] == ["full", "here", "left"]
    assert showing.catalogue(rows, found)[0].nodes == ["b"]


def test_a_node_whose_link_budget_is_used_up_is_shown_with_what_travelled_and_nobody_counts_on_it() -> None:
    rows = [msgspec.structs.replace(node("a"), link_budget="1kB/min"), node("b")]
    uses = {"a": LinkUse(900, 200, "its link budget is used up")}

    found = showing.nodes(
        rows,
        (),
        {},
        now_ms=NOW_MS,
        settings=SETTINGS,
        silent_after_s=150,
        max_queued=4,
        link_use=lambda row: uses.get(row.node_id, LinkUse()),
    )

    assert [(each.state, each.sent_bytes, each.received_bytes) for each in found] == [
        ("over-budget", 900, 200),
        ("here", 0, 0),
    ]
    assert (found[0].link_budget, found[0].over_budget) == ("1kB/min", "its link budget is used up")
    assert [each.nodes for each in showing.catalogue(rows, found)] == [["b"]]


def test_a_node_is_shown_with_all_its_ways_the_one_in_use_and_those_that_are_closed() -> None:
    row = msgspec.structs.replace(node("a"), ways=("AMQP", "MQTT-LINK", "HTTP"), closed=("AMQP",), protocol="MQTT-LINK")
    unheard = msgspec.structs.replace(node("b"), ways=("AMQP", "MQTT-UNHEARD"))

    found = showing.nodes(
        [row, unheard, node("c", left=True)],
        (),
        {},
        now_ms=NOW_MS,
        settings=SETTINGS,
        silent_after_s=150,
        max_queued=100,
        way=lambda row: row.protocol,
    )

    assert [(each.protocol, each.way, each.closed) for each in found] == [
        ("AMQP+MQTT+HTTP", "MQTT", ["AMQP"]),
        ("AMQP", "AMQP", []),
        ("AMQP", "", []),
    ]


def test_a_node_without_queue_and_address_is_shown_and_nobody_counts_on_it() -> None:
    row = msgspec.structs.replace(node("in the cellar"), protocol="")

    assert [(each.protocol, each.state) for each in shown(row)] == [("", "unreachable")]
    assert [each.nodes for each in showing.catalogue([row], shown(row))] == [[]]


def test_health_is_told_of_the_node_and_of_each_action_that_is_not_well() -> None:
    down = breaker("gw-7", action=FETCH, failures=3, down_until_ms=NOW_MS + 1_000)

    [told] = shown(node("gw-7"), breakers=(breaker("gw-7", failures=1), down))

    assert (told.health, told.action_health, told.queued) == ("WARNING", {FETCH: "DOWN"}, 3)


def test_the_catalogue_names_those_who_can_run_an_action_now() -> None:
    rows = [node("a"), node("b"), node("c", seen_ms=0), node("d"), node("e", left=True)]
    breakers = (
        breaker("b", failures=3, down_until_ms=NOW_MS + 1_000),
        breaker("d", action=FETCH, failures=3, down_until_ms=NOW_MS + 1_000),
    )

    [entry] = showing.catalogue(rows, shown(*rows, breakers=breakers))

    assert (entry.action, entry.urn) == (FETCH, "urn:sapparchi:Action:continuum.fetch")
    assert (entry.nodes, entry.layers) == (["a"], ["FOG"])
    assert (entry.timeout_ms, entry.retry) == (5_000, 1)
