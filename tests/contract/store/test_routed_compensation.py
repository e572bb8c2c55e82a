"""Compensations on a store: sent with what their step got and gave, recorded once, taken over, told with the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from tests.contract.store.routed_words import (
    Nodes,
    answer,
    begin,
    cancel,
    data_of,
    due,
    failed,
    move,
    moved,
    pay,
    rerun,
    states,
    to_nodes,
)
from tests.contract.store.words import NOW_MS, result_body, row

from canoa.execution.outcome import Outcome
from canoa.execution.plan import FromInput, FromStep, Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.store.port import State
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire.task import DEADLINE, IDEMPOTENCY_KEY

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.routed_port import FullStore, Moved

A = TaskId("a")
SHOP = Plan(
    name="order",
    steps=(
        Step(
            name="charge",
            action=ActionName("shop.charge"),
            arguments={"card": FromInput("card"), "cents": FromInput("cents")},
            compensate=ActionName("shop.refund"),
        ),
        Step(
            name="reserve",
            action=ActionName("shop.reserve"),
            after=("charge",),
            arguments={"receipt": FromStep("charge", "id")},
            compensate=ActionName("shop.release"),
        ),
        Step(name="ship", action=ActionName("shop.ship"), after=("reserve",)),
    ),
)
ORDER = b'{"card":"4711","cents":995}'
"""Places: 0 charge, 1 reserve, 2 ship, 3 reserve.compensation, 4 charge.compensation."""


async def shipping(store: FullStore, **properties: Any) -> None:
    """Charged and reserved; what is left is to ship."""
    await move(store, begin("a", SHOP, body=ORDER, reply_to="caller", **properties))
    await move(store, answer("a.0.1.1", {"id": "ch-1"}))
    await move(store, answer("a.1.1.1", "shelf 7"))


def final(done: Moved) -> Any:
    return msgspec.json.decode(done.owed[-1].publication.message.body)


async def test_a_step_is_undone_with_what_it_got_and_what_it_gave(store: FullStore) -> None:
    await shipping(store)

    release = await move(store, failed("a.2.1.1"))
    refund = await move(store, answer("a.3.1.1", after_ms=200))

    assert (to_nodes(release), to_nodes(refund)) == (["a.3.1.1"], ["a.4.1.1"])
    assert data_of(release.owed[0]) == {"input": {"receipt": "ch-1"}, "output": "shelf 7"}
    assert data_of(refund.owed[0]) == {"input": {"card": "4711", "cents": 995}, "output": {"id": "ch-1"}}
    assert (await row(store, "a")).state is State.RUNNING


async def test_the_task_ends_after_the_last_compensation_with_the_first_failure(store: FullStore) -> None:
    await shipping(store)
    await move(store, failed("a.2.1.1", "no truck"))
    await move(store, answer("a.3.1.1", after_ms=200))

    done = await move(store, answer("a.4.1.1", {"refunded": True}, after_ms=300))

    assert done.outcome is Outcome.FAILED
    end = await row(store, "a")
    assert (end.outcome, end.error) == (Outcome.FAILED, "step ship: ValueError: no truck")
    steps = final(done)["steps"]
    assert [*steps] == ["charge", "reserve", "ship"]
    assert {name: step["compensation"]["status"] for name, step in steps.items() if "compensation" in step} == {
        "charge": "ok",
        "reserve": "ok",
    }
    assert steps["charge"]["compensation"]["action"] == "urn:sapparchi:Action:shop.refund"
    assert steps["charge"]["compensation"]["output"] == {"refunded": True}


async def test_the_story_tells_which_compensations_ran_and_for_which_step(store: FullStore) -> None:
    await shipping(store)
    before = states(await store.steps(A))
    await move(store, failed("a.2.1.1"))

    during = await store.steps(A)
    await move(store, answer("a.3.1.1", after_ms=200))
    await move(store, answer("a.4.1.1", after_ms=300))

    assert before == ["ok", "ok", "sent"]
    assert states(during) == ["ok", "ok", "failed", "sent", "blocked"]
    assert [(step.name, step.action, step.compensates) for step in during[3:]] == [
        ("reserve.compensation", "shop.release", "reserve"),
        ("charge.compensation", "shop.refund", "charge"),
    ]
    assert states(await store.steps(A)) == ["ok", "ok", "failed", "ok", "ok"]


async def test_a_task_that_ends_well_leaves_no_trace_of_its_compensations(store: FullStore) -> None:
    await shipping(store)

    done = await move(store, answer("a.2.1.1", "on its way"))

    assert done.outcome is Outcome.OK
    assert await result_body(store, "a") == b'"on its way"'
    assert states(await store.steps(A)) == ["ok", "ok", "ok"]
    assert "compensation" not in final(done)["steps"]["charge"]


async def test_a_compensation_that_fails_is_named_and_the_others_run(store: FullStore) -> None:
    await shipping(store)
    await move(store, failed("a.2.1.1", "no truck"))

    refund = await move(store, failed("a.3.1.1", "no such shelf", after_ms=200))
    done = await move(store, answer("a.4.1.1", after_ms=300))

    assert (to_nodes(refund), done.outcome) == (["a.4.1.1"], Outcome.FAILED)
    error = "step ship: ValueError: no truck; step reserve could not be compensated: ValueError: no such shelf"
    assert (await row(store, "a")).error == error
    assert final(done)["error"] == error
    assert final(done)["steps"]["reserve"]["compensation"]["status"] == "failed"


async def test_a_compensation_that_is_not_answered_is_tried_again_and_ends_by_its_time_limit(store: FullStore) -> None:
    route = Nodes("gw-7", retries=1)
    await shipping(store)
    await move(store, failed("a.2.1.1", is_final=True), route=route)
    await pay(store, "a.3.1.1")
    limit_ms = NOW_MS + 100 + 40_000

    waits = await move(store, due("a", 3, limit_ms), route=route)
    again = await move(store, due("a", 3, waits.due_ms[0]), route=route)
    await pay(store, "a.3.2.2")
    over = await move(store, due("a", 3, again.due_ms[0]), route=route)

    assert (to_nodes(again), to_nodes(over)) == (["a.3.2.2"], ["a.4.1.1"])
    assert states(await store.steps(A))[3] == "timed_out"


async def test_answers_to_compensations_count_once(store: FullStore) -> None:
    await shipping(store)
    await move(store, failed("a.2.1.1"))

    first, second, other = await moved(
        store, answer("a.3.1.1"), answer("a.3.1.1"), failed("a.3.1.1"), route=Nodes("gw-7")
    )

    assert [first.verdict, second.verdict, other.verdict] == [Verdict.TAKEN, Verdict.DOUBLE, Verdict.LATE]
    assert [to_nodes(each) for each in (first, second, other)] == [["a.4.1.1"], [], []]


async def test_any_manager_goes_on_undoing_from_the_rows(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await shipping(first)
    await move(first, failed("a.2.1.1"))

    refund = await move(second, answer("a.3.1.1", after_ms=200))
    done = await move(first, answer("a.4.1.1", after_ms=300))

    assert data_of(refund.owed[0]) == {"input": {"card": "4711", "cents": 995}, "output": {"id": "ch-1"}}
    assert done.outcome is Outcome.FAILED


async def test_a_compensation_that_is_out_is_known_to_whoever_comes_later(open_store: OpenStore) -> None:
    first = await open_store()
    await shipping(first)
    await move(first, failed("a.2.1.1"))
    await first.aclose()

    second = await open_store()

    assert await second.sent_steps(NodeId("gw-7"), limit=10) == ["a.3.1.1"]
    assert [(each.step, each.due_ms) for each in await second.open_steps(limit=10)] == [(3, NOW_MS + 100 + 40_000)]


async def test_cancelling_undoes_what_was_done_and_what_was_called_off(store: FullStore) -> None:
    await move(store, begin("a", SHOP, body=ORDER))
    await move(store, answer("a.0.1.1", {"id": "ch-1"}))

    called_off = await move(store, cancel("a"))
    again = await move(store, cancel("a", after_ms=510))
    await move(store, answer("a.3.1.1", after_ms=600))
    done = await move(store, answer("a.4.1.1", after_ms=700))

    assert (called_off.cancel, called_off.outcome) == (("a.1.1.1",), None)
    assert data_of(called_off.owed[0]) == {"input": {"receipt": "ch-1"}, "output": None}
    assert (again.verdict, again.owed) == (Verdict.LATE, ())
    assert done.outcome is Outcome.CANCELLED
    assert (await row(store, "a")).error == "the task was cancelled"


async def test_the_callers_deadline_is_not_for_undoing(store: FullStore) -> None:
    await shipping(store, headers={DEADLINE: NOW_MS + 150})

    release = await move(store, failed("a.2.1.1"))
    refund = await move(store, answer("a.3.1.1", after_ms=10_000))

    assert (to_nodes(release), to_nodes(refund)) == (["a.3.1.1"], ["a.4.1.1"])
    assert DEADLINE not in refund.owed[0].publication.message.headers


# --- Running again --------------------------------------------------------------------------------------------


async def undone(store: FullStore) -> None:
    await shipping(store)
    await move(store, failed("a.2.1.1"))
    await move(store, answer("a.3.1.1", after_ms=200))
    await move(store, answer("a.4.1.1", after_ms=300))


async def test_a_rerun_does_again_what_was_undone(open_store: OpenStore) -> None:
    await undone(await open_store())
    store = await open_store()

    charge = await move(store, rerun("a"))
    reserve = await move(store, answer("a.0.1.2", {"id": "ch-2"}, after_ms=1100))
    ship = await move(store, answer("a.1.1.2", "shelf 8", after_ms=1200))
    done = await move(store, answer("a.2.1.2", "on its way", after_ms=1300))

    assert [to_nodes(each) for each in (charge, reserve, ship)] == [["a.0.1.2"], ["a.1.1.2"], ["a.2.1.2"]]
    assert data_of(reserve.owed[0]) == {"receipt": "ch-2"}
    assert done.outcome is Outcome.OK
    rows = await store.steps(A)
    assert states(rows) == ["ok", "ok", "ok"]
    assert [sent.outcome for sent in rows[0].attempts] == ["undone", "ok"]


async def test_what_is_done_again_and_undone_again_has_another_idempotency_key(store: FullStore) -> None:
    await move(store, begin("a", SHOP, body=ORDER))
    first = await move(store, failed("a.0.1.1"))
    await move(store, rerun("a"))
    await move(store, answer("a.0.1.2", {"id": "ch-1"}, after_ms=1100))
    refund = await move(store, failed("a.1.1.1", after_ms=1200))
    await move(store, answer("a.4.1.1", after_ms=1300))

    charge = await move(store, rerun("a", after_ms=2000))
    await move(store, answer("a.0.1.3", {"id": "ch-2"}, after_ms=2100))
    again = await move(store, failed("a.1.1.2", after_ms=2200))

    assert first.outcome is Outcome.FAILED
    keys = [each.owed[0].publication.message.headers.get(IDEMPOTENCY_KEY) for each in (refund, charge, again)]
    assert keys == ["a.4.2", "a.0.1", "a.4.3"]


async def test_where_a_compensation_failed_a_rerun_repeats_only_that(open_store: OpenStore) -> None:
    first = await open_store()
    await shipping(first)
    await move(first, failed("a.2.1.1"))
    await move(first, answer("a.3.1.1", after_ms=200))
    await move(first, failed("a.4.1.1", "the bank is closed", after_ms=300))
    store = await open_store()

    refund = await move(store, rerun("a"))
    done = await move(store, answer("a.4.1.2", after_ms=1100))

    assert to_nodes(refund) == ["a.4.1.2"]
    assert data_of(refund.owed[0])["output"] == {"id": "ch-1"}
    assert done.outcome is Outcome.FAILED
    assert (await row(store, "a")).error == "step ship: ValueError: no"
    assert to_nodes(await move(store, rerun("a", after_ms=2000))) == ["a.0.1.2"]


async def test_a_plan_with_an_unknown_compensation_is_refused_before_anything_runs(store: FullStore) -> None:
    done = await move(store, begin("a", SHOP, body=ORDER), route=Nodes("gw-7", unknown=["shop.refund"]))

    assert (done.outcome, to_nodes(done)) == (Outcome.REFUSED, [])
    assert "shop.refund" in ((await row(store, "a")).error or "")
