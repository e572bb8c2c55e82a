"""Routed tasks: begun once, moved by answers, ended once, and then like any other task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.store.routed_words import (
    CHAIN,
    FETCH,
    SINGLE,
    Nodes,
    answer,
    begin,
    cancel,
    data_of,
    due,
    failed,
    fan,
    is_to_node,
    lost,
    move,
    moved,
    pay,
    rerun,
    sent_to,
    states,
    to_nodes,
)
from tests.contract.store.words import NOW_MS, ended, row

from canoa.broker import topology
from canoa.execution.outcome import Outcome
from canoa.execution.plan import FromInput, FromStep, Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.store.port import Ended, State, TaskFilter
from canoa.vocabulary import NodeId, TaskId
from canoa.wire.sapparchi import OWNER, STATUS
from canoa.wire.task import TIMEOUT

if TYPE_CHECKING:
    from canoa.store.routed_port import FullStore

A = TaskId("a")


async def begun(store: FullStore, plan: Plan = SINGLE, *, task_id: str = "a", route: Nodes | None = None) -> list[str]:
    """Request ids of what was sent first."""
    done = await move(store, begin(task_id, plan, reply_to="caller"), route=route or Nodes("gw-7"))
    assert done.verdict is Verdict.TAKEN
    return to_nodes(done)


async def test_a_routed_task_is_kept_and_its_message_owed(store: FullStore) -> None:
    done = await move(store, begin("a"))

    (owed,) = done.owed
    assert owed.publication.exchange == topology.NODE_UNICAST
    assert owed.publication.mandatory
    assert owed.publication.message.message_id == owed.key == "a.0.1.1"
    assert owed.publication.message.headers["nodeId"] == "gw-7"
    assert owed.publication.message.headers[OWNER] == "manager"
    assert owed.publication.message.expiration_s == 3640  # the time limit, travel, and an hour in the node's queue
    assert msgspec.json.decode(owed.publication.message.body) == {
        "actionTo": "urn:sapparchi:Action:power.fetch",
        "requestID": "a.0.1.1",
        "messageData": '{"url":"u"}',
    }
    assert done.due_ms == (NOW_MS + 40_000,)
    assert (await row(store, "a")).state is State.WAITING
    assert await store.plan_of(A) == SINGLE


async def test_the_answer_of_its_node_ends_a_single_action(store: FullStore) -> None:
    (request,) = await begun(store)

    done = await move(store, answer(request, {"kw": 3}))

    assert (done.verdict, done.outcome, done.step_outcome) == (Verdict.TAKEN, Outcome.OK, "ok")
    assert (done.node_id, done.action) == ("gw-7", FETCH)
    told, final = (owed.publication for owed in done.owed)
    assert (told.exchange, told.key, told.message.type, told.message.body) == ("", "caller", "ok", b'{"kw":3}')
    assert (told.message.correlation_id, told.mandatory) == ("a", False)
    assert (final.exchange, final.key) == ("amq.topic", topology.FINAL_RESULTS)
    assert msgspec.json.decode(final.message.body) == {
        "actionTo": "urn:sapparchi:Action:power.fetch",
        "requestID": "a",
        "messageData": '{"kw":3}',
    }


async def test_a_routed_task_ends_like_any_other(store: FullStore) -> None:
    (request,) = await begun(store)

    await move(store, answer(request, {"kw": 3}))

    task = await row(store, "a")
    assert (task.state, task.outcome, task.attempts, task.node_id) == (State.ENDED, Outcome.OK, 1, "gw-7")
    assert (task.started_ms, task.ended_ms, task.error) == (NOW_MS + 90, NOW_MS + 100, None)
    kept = await store.result(A)
    assert kept is not None
    assert (kept.body, kept.type, kept.content_type) == (b'{"kw":3}', "ok", "application/json")
    assert [each.id for each in await store.tasks(TaskFilter(outcome=Outcome.OK), limit=5)] == ["a"]


async def test_the_same_request_again_begins_nothing_but_hears_of_the_end(store: FullStore) -> None:
    (request,) = await begun(store)

    again = await move(store, begin("a", reply_to="second"))
    done = await move(store, answer(request))

    assert (again.verdict, again.owed) == (Verdict.DOUBLE, ())
    assert [owed.publication.key for owed in done.owed][:2] == ["caller", "second"]


async def test_the_same_request_after_the_end_is_answered_at_once(store: FullStore) -> None:
    (request,) = await begun(store)
    await move(store, answer(request, "done"))

    again = await move(store, begin("a", reply_to="late"))

    assert again.verdict is Verdict.DOUBLE
    (owed,) = again.owed
    assert (owed.publication.key, owed.publication.message.body) == ("late", b'"done"')


async def test_only_the_first_answer_counts(store: FullStore) -> None:
    (request,) = await begun(store)
    await move(store, answer(request, 1))

    double, other = await moved(store, answer(request, 2), failed(request))

    assert (double.verdict, double.owed) == (Verdict.DOUBLE, ())
    assert (other.verdict, other.owed) == (Verdict.LATE, ())
    kept = await store.result(A)
    assert kept is not None
    assert kept.body == b"1"


@pytest.mark.parametrize("request_id", ["a.0.2.1", "a.0.1.2", "a.0.9.9"])
async def test_an_answer_of_another_attempt_changes_nothing(store: FullStore, request_id: str) -> None:
    await begun(store)

    done = await move(store, answer(request_id))

    assert (done.verdict, done.owed) == (Verdict.LATE, ())
    assert states(await store.steps(A)) == ["sent"]


@pytest.mark.parametrize("request_id", ["a.1.1.1", "unknown.0.1.1"])
async def test_an_answer_for_what_nobody_knows_is_unknown(store: FullStore, request_id: str) -> None:
    await begun(store)

    assert (await move(store, answer(request_id))).verdict is Verdict.UNKNOWN


async def test_each_step_of_a_chain_gets_what_the_one_before_gave(store: FullStore) -> None:
    (first,) = await begun(store, CHAIN)

    second = await move(store, answer(first, {"v": [230, 10]}))
    third = await move(store, answer(to_nodes(second)[0], 0.93))
    last = await move(store, answer(to_nodes(third)[0], "good"))

    assert [data_of(each) for each in (*second.owed, *third.owed)] == [{"v": [230, 10]}, 0.93]
    assert last.outcome is Outcome.OK
    kept = await store.result(A)
    assert kept is not None
    assert kept.body == b'"good"'
    assert await store.step_output(A, 0) == b'{"v":[230,10]}'


async def test_a_task_of_several_steps_is_published_as_one_consolidated_result(store: FullStore) -> None:
    (request,) = await begun(store, CHAIN)
    for output in ("x", "y"):
        (request,) = to_nodes(await move(store, answer(request, output)))

    done = await move(store, answer(request, "z"))

    body = msgspec.json.decode(done.owed[1].publication.message.body)

    assert (body["id"], body["task_id"], body["status"], body["output"]) == ("a", "urn:sapparchi:Task:chain", "ok", "z")
    assert {name: step["output"] for name, step in body["steps"].items()} == {
        "fetch": "x",
        "factor": "y",
        "report": "z",
    }
    assert body["steps"]["fetch"]["node"] == "gw-7"


async def test_a_join_gets_all_it_waits_for_and_is_sent_once(store: FullStore) -> None:
    (first,) = await begun(store, fan(3))
    parts = to_nodes(await move(store, answer(first, 7)))

    done = [await move(store, answer(part, number)) for number, part in enumerate(parts)]

    assert [len(each.owed) for each in done] == [0, 0, 1]
    assert data_of(done[-1].owed[0]) == {"part-0": 0, "part-1": 1, "part-2": 2}


async def test_a_whole_fan_may_be_answered_in_one_group(store: FullStore) -> None:
    (first,) = await begun(store, fan(3))
    parts = to_nodes(await move(store, answer(first, 7)))

    done = await moved(store, *(answer(part, number) for number, part in enumerate(parts)))

    assert [len(each.owed) for each in done] == [0, 0, 1]
    assert data_of(done[-1].owed[0]) == {"part-0": 0, "part-1": 1, "part-2": 2}


async def test_arguments_are_taken_from_the_input_and_from_steps(store: FullStore) -> None:
    plan = Plan(
        name="arguments",
        steps=(
            Step(name="fetch", action=FETCH, arguments={"url": FromInput("url")}, timeout_s=5.0),
            Step(
                name="use", action=FETCH, after=("fetch",), arguments={"v": FromStep("fetch", "v"), "all": FromInput()}
            ),
        ),
    )
    first = await move(store, begin("a", plan))

    second = await move(store, answer(to_nodes(first)[0], {"v": 3}))

    assert data_of(first.owed[0]) == {"url": "u"}
    assert first.owed[0].publication.message.headers[TIMEOUT] == 5000
    assert data_of(second.owed[0]) == {"v": 3, "all": {"url": "u"}}


async def test_a_step_whose_input_is_missing_is_refused_and_what_waits_for_it_is_skipped(store: FullStore) -> None:
    plan = Plan(
        name="missing",
        steps=(
            Step(name="fetch", action=FETCH),
            Step(name="use", action=FETCH, after=("fetch",), arguments={"v": FromStep("fetch", "nothing")}),
            Step(name="last", action=FETCH, after=("use",)),
        ),
    )
    (first,) = await begun(store, plan)

    done = await move(store, answer(first, {"v": 3}))

    assert (done.outcome, done.step_outcome) == (Outcome.REFUSED, "ok")
    assert not any(is_to_node(owed.publication) for owed in done.owed)
    assert states(await store.steps(A)) == ["ok", "refused", "skipped"]
    assert "nothing" in ((await row(store, "a")).error or "")


async def test_a_failed_step_is_tried_again_when_its_time_has_come(store: FullStore) -> None:
    nodes = Nodes("gw-7", retries=1)
    (first,) = await begun(store, route=nodes)

    done = await move(store, failed(first), route=nodes)
    (timer,) = await store.due_steps(now_ms=NOW_MS + 3_600_000, limit=10)
    again = await move(store, due("a", 0, timer.due_ms), route=nodes)
    last = await move(store, failed(to_nodes(again)[0], "still no"), route=nodes)

    assert (done.outcome, done.step_outcome, done.due_ms) == (None, "failed", (timer.due_ms,))
    assert NOW_MS + 500 < timer.due_ms < NOW_MS + 2000
    assert to_nodes(again) == ["a.0.2.2"]
    assert last.outcome is Outcome.FAILED
    task = await row(store, "a")
    assert (task.outcome, task.attempts, task.error) == (Outcome.FAILED, 2, "ValueError: still no")


async def test_a_failed_routed_task_is_told_with_its_cause_and_makes_no_dead_letter(store: FullStore) -> None:
    (request,) = await begun(store)

    done = await move(store, failed(request, traceback="Traceback …"))

    told, final = (owed.publication.message for owed in done.owed)
    assert told.type == "failed"
    assert msgspec.json.decode(told.body) == {
        "message": "no",
        "error_type": "ValueError",
        "attempts": 1,
        "traceback": "Traceback …",
    }
    assert final.headers[STATUS] == "failed"
    assert msgspec.json.decode(msgspec.json.decode(final.body)["messageData"]) == {"error": "ValueError: no"}
    assert await store.letters(limit=5) == []


async def test_independent_steps_go_on_when_another_fails(store: FullStore) -> None:
    (first,) = await begun(store, fan(3))
    one, two, three = to_nodes(await move(store, answer(first)))

    early = await moved(store, failed(one, after_ms=110), answer(two, after_ms=120))
    last = await move(store, answer(three, after_ms=130))

    assert [each.outcome for each in early] == [None, None]
    assert last.outcome is Outcome.FAILED
    assert states(await store.steps(A)) == ["ok", "failed", "ok", "ok", "skipped"]
    assert (await row(store, "a")).error == "step part-0: ValueError: no"


async def test_an_action_nobody_ever_offered_is_refused_before_anything_runs(store: FullStore) -> None:
    done = await move(store, begin("a", CHAIN, reply_to="caller"), route=Nodes("gw-7", unknown=["power.report"]))

    assert (done.verdict, done.outcome) == (Verdict.TAKEN, Outcome.REFUSED)
    assert states(await store.steps(A)) == ["skipped", "skipped", "refused"]
    assert "power.report" in ((await row(store, "a")).error or "")
    assert done.owed[0].publication.key == "caller"


async def test_a_step_waits_for_a_node_and_is_sent_when_there_is_one(store: FullStore) -> None:
    nodes = Nodes()
    done = await move(store, begin("a"), route=nodes)

    (timer,) = await store.due_steps(now_ms=NOW_MS + 1000, limit=5)
    later = await move(store, due("a", 0, timer.due_ms), route=nodes)
    nodes.names = ["gw-8"]
    (second,) = later.due_ms
    sent = await move(store, due("a", 0, second), route=nodes)

    assert (done.owed, done.due_ms) == ((), (NOW_MS + 200,))
    assert sent_to(sent.owed[0]) == "gw-8"


async def test_a_step_that_finds_no_node_in_time_expires(store: FullStore) -> None:
    await move(store, begin("a"), route=Nodes())

    done = await move(store, due("a", 0, NOW_MS + 200, now_ms=NOW_MS + 3_600_000), route=Nodes())

    assert done.outcome is Outcome.EXPIRED


async def test_a_lost_step_goes_to_another_node_and_that_is_no_attempt(store: FullStore) -> None:
    nodes = Nodes("gw-7", "gw-8")
    first = await move(store, begin("a"), route=nodes)

    done = await move(store, lost(to_nodes(first)[0]), route=nodes)

    assert (done.step_outcome, done.node_id) == ("lost", sent_to(first.owed[0]))
    assert to_nodes(done) == ["a.0.1.2"]
    assert sent_to(done.owed[0]) != sent_to(first.owed[0])
    (step,) = await store.steps(A)
    assert [(sent.attempt, sent.outcome) for sent in step.attempts] == [(1, "lost"), (1, None)]
    assert (await move(store, answer(to_nodes(first)[0]), route=nodes)).verdict is Verdict.LATE


async def test_an_attempt_that_nobody_answers_times_out(store: FullStore) -> None:
    (request,) = await begun(store)
    await pay(store, request)

    done = await move(store, due("a", 0, NOW_MS + 40_000))

    assert (done.outcome, done.step_outcome, done.node_id) == (Outcome.TIMED_OUT, "timed_out", "gw-7")
    assert done.cancel == (request,)
    assert (await move(store, answer(request))).verdict is Verdict.LATE


async def test_the_time_of_an_attempt_begins_when_the_broker_has_it(store: FullStore) -> None:
    (request,) = await begun(store)

    unsent = await move(store, due("a", 0, NOW_MS + 40_000))
    await pay(store, request)
    early = await move(store, due("a", 0, NOW_MS + 80_000, now_ms=NOW_MS + 79_999))
    (again_ms,) = early.due_ms
    late = await move(store, due("a", 0, again_ms))

    assert (unsent.step_outcome, unsent.due_ms) == (None, (NOW_MS + 80_000,))
    assert early.step_outcome is None
    assert late.step_outcome == "timed_out"


async def test_a_second_look_at_the_same_timer_does_nothing(store: FullStore) -> None:
    nodes = Nodes("gw-7", retries=3)
    (request,) = await begun(store, route=nodes)
    (first,) = await moved(store, due("a", 0, NOW_MS + 40_000), paid=[request], route=nodes)
    assert first.step_outcome == "timed_out"

    done = await move(store, due("a", 0, NOW_MS + 40_000), route=nodes)

    assert (done.verdict, done.owed) == (Verdict.LATE, ())


async def test_timers_are_found_the_earliest_first(store: FullStore) -> None:
    for number, timeout_s in enumerate((30.0, 10.0, 20.0)):
        await move(store, begin(f"t-{number}"), route=Nodes("gw-7", timeout_s=timeout_s))

    found = await store.due_steps(now_ms=NOW_MS + 35_000, limit=10)

    assert [(timer.task_id, timer.due_ms) for timer in found] == [("t-1", NOW_MS + 20_000), ("t-2", NOW_MS + 30_000)]


async def test_a_timer_of_a_clock_that_has_gone_back_is_found(store: FullStore) -> None:
    await begun(store)
    before_ms = NOW_MS - 86_400_000

    (timer,) = await store.due_steps(now_ms=before_ms, limit=10)
    done = await move(store, due("a", 0, timer.due_ms, now_ms=before_ms))

    assert (done.verdict, done.due_ms, done.outcome) == (Verdict.TAKEN, (before_ms + 40_000,), None)


async def test_a_task_that_is_not_due_yet_waits_for_its_time(store: FullStore) -> None:
    done = await move(store, begin("a", due_ms=NOW_MS + 60_000))
    sent = await move(store, due("a", 0, NOW_MS + 60_000))

    assert (done.owed, done.due_ms) == ((), (NOW_MS + 60_000,))
    assert to_nodes(sent) == ["a.0.1.1"]


async def test_cancelling_ends_the_task_at_once(store: FullStore) -> None:
    (first,) = await begun(store, CHAIN)

    done = await move(store, cancel("a"))
    late = await move(store, answer(first))

    assert (done.verdict, done.outcome, done.cancel) == (Verdict.TAKEN, Outcome.CANCELLED, (first,))
    assert done.owed[0].publication.message.type == "cancelled"
    assert (late.verdict, late.owed) == (Verdict.LATE, ())
    assert states(await store.steps(A)) == ["cancelled", "skipped", "skipped"]
    assert (await move(store, cancel("a"))).verdict is Verdict.LATE
    assert (await move(store, cancel("nobody"))).verdict is Verdict.UNKNOWN


async def test_what_was_cancelled_before_it_was_sent_is_owed_no_more(store: FullStore) -> None:
    await begun(store)
    await move(store, cancel("a"))

    keys = [owed.key for owed in await store.take_owed(now_ms=NOW_MS + 60_000, limit=10, for_ms=1000)]

    assert all(key.startswith("a.0.reply") or key.startswith("a.0.final") for key in keys)


async def test_a_rerun_repeats_only_what_did_not_succeed(store: FullStore) -> None:
    (first,) = await begun(store, CHAIN)
    (second,) = to_nodes(await move(store, answer(first, "x")))
    await move(store, failed(second))

    done = await move(store, rerun("a"))
    (again,) = to_nodes(done)

    assert (done.verdict, done.outcome) == (Verdict.TAKEN, None)
    assert (again, data_of(done.owed[0])) == ("a.1.1.2", "x")
    assert states(await store.steps(A)) == ["ok", "sent", "blocked"]
    task = await row(store, "a")
    assert (task.run, task.outcome, task.ended_ms, await store.result(A)) == (1, None, None, None)
    assert (await move(store, answer(second))).verdict is Verdict.LATE

    (third,) = to_nodes(await move(store, answer(again, "y", after_ms=2000)))
    last = await move(store, answer(third, "z", after_ms=2100))

    assert last.outcome is Outcome.OK
    assert last.owed[0].publication.key == "caller"


async def test_only_what_ended_badly_is_rerun(store: FullStore) -> None:
    (request,) = await begun(store)

    assert (await move(store, rerun("a"))).verdict is Verdict.LATE
    await move(store, answer(request))
    assert (await move(store, rerun("a"))).verdict is Verdict.LATE
    assert (await move(store, rerun("nobody"))).verdict is Verdict.UNKNOWN


async def test_an_end_and_its_rerun_may_be_in_one_group(store: FullStore) -> None:
    (request,) = await begun(store)

    end, again = await moved(store, failed(request), rerun("a"))

    assert (end.outcome, len(end.owed)) == (Outcome.FAILED, 2)
    assert to_nodes(again) == ["a.0.1.2"]


async def test_a_worker_of_the_pool_cannot_end_a_routed_task(store: FullStore) -> None:
    await begun(store)

    assert await ended(store, "a") == Ended(is_first=False)
    assert await store.unfinished(limit=5) == []


async def test_what_is_out_is_known_by_node(store: FullStore) -> None:
    await moved(store, begin("a"), begin("b"), route=Nodes("gw-7"))
    await move(store, begin("c"), route=Nodes("gw-8"))

    assert await store.sent_steps(NodeId("gw-7"), limit=5) == ["a.0.1.1", "b.0.1.1"]
    assert await store.sent_steps(NodeId("gw-7"), limit=1) == ["a.0.1.1"]
    assert await store.queued_for() == {"gw-7": 2, "gw-8": 1}


async def test_what_a_forgetful_broker_had_is_listed_page_by_page(store: FullStore) -> None:
    await moved(store, begin("a"), begin("b", fan(2)), begin("c"))
    await move(store, answer("b.0.1.1"))
    await move(store, answer("c.0.1.1"))

    first = await store.open_steps(limit=2)
    rest = await store.open_steps(limit=2, after=first[-1])

    assert [(each.task_id, each.step, each.attempt, each.send) for each in (*first, *rest)] == [
        ("a", 0, 1, 1),
        ("b", 1, 1, 1),
        ("b", 2, 1, 1),
    ]


async def test_the_story_of_a_step_is_told(store: FullStore) -> None:
    (request,) = await begun(store)
    await move(store, answer(request))

    (step,) = await store.steps(A)

    (sent,) = step.attempts
    assert (step.name, step.action, step.ready_ms, step.ended_ms) == ("fetch", FETCH, NOW_MS, NOW_MS + 100)
    assert (sent.node_id, sent.why, sent.sent_ms) == ("gw-7", "its turn", NOW_MS)
    assert (sent.started_ms, sent.ended_ms, sent.outcome) == (NOW_MS + 90, NOW_MS + 95, "ok")


async def test_strange_ids_and_texts_are_kept(store: FullStore) -> None:
    task_id = "Ω\0.x\ud800"
    (request,) = to_nodes(await move(store, begin(task_id, message_id="m")))

    done = await move(store, failed(request, "nul \0 and half \ud800" + "x" * 5000))

    assert done.outcome is Outcome.FAILED
