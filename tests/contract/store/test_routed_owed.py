"""What a move left to be sent: the mover's for a while, then anybody's, until it was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.store.routed_words import (
    CHAIN,
    SINGLE,
    Nodes,
    answer,
    begin,
    due,
    failed,
    fan,
    move,
    moved,
    pay,
    to_nodes,
)
from tests.contract.store.words import NOW_MS

from canoa.execution.outcome import Outcome
from canoa.store.port import Retention
from canoa.store.routed_debts import PAID_TOGETHER_MS
from canoa.store.routed_port import HOLD_OWED_MS
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore, RunSql

    from canoa.store.routed_port import FullStore, Owed

DAY_MS = 86_400_000


def keys(owed: list[Owed]) -> list[str]:
    return [each.key for each in owed]


async def test_what_a_killed_manager_left_is_taken_by_another_after_the_hold(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    done = await move(first, begin("a"))

    early = await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS - 1, limit=5, for_ms=1000)
    taken = await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=5, for_ms=1000)

    assert early == []
    assert taken == list(done.owed)


async def test_nobody_takes_what_another_one_holds(store: FullStore) -> None:
    await moved(store, begin("a"), begin("b"))
    at_ms = NOW_MS + HOLD_OWED_MS

    first = await store.take_owed(now_ms=at_ms, limit=1, for_ms=1000)
    second = await store.take_owed(now_ms=at_ms, limit=5, for_ms=1000)

    assert (keys(first), keys(second)) == (["a.0.1.1"], ["b.0.1.1"])
    assert await store.take_owed(now_ms=at_ms + 999, limit=5, for_ms=1000) == []
    assert keys(await store.take_owed(now_ms=at_ms + 1000, limit=5, for_ms=1000)) == ["a.0.1.1", "b.0.1.1"]


async def test_what_was_paid_is_owed_no_more(store: FullStore) -> None:
    await moved(store, begin("a"), begin("b"))

    await pay(store, "a.0.1.1", "a.0.1.1", "nobody's")

    assert keys(await store.take_owed(now_ms=NOW_MS + DAY_MS, limit=5, for_ms=1000)) == ["b.0.1.1"]


async def test_what_was_answered_is_not_sent_again_though_its_manager_died_before_it_said_so(
    open_store: OpenStore,
) -> None:
    first, second = await open_store(), await open_store()
    await moved(first, begin("a", CHAIN), begin("b"))
    (done,) = await moved(second, answer("a.0.1.1"))

    left = await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=5, for_ms=1000)

    assert to_nodes(done) == ["a.1.1.1"]
    assert keys(left) == ["b.0.1.1"]


async def test_what_was_paid_of_a_group_is_not_sent_again_by_another_manager(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await moved(first, begin("a"), begin("b"))
    await pay(first, "a.0.1.1")
    await first.take_owed(now_ms=NOW_MS + PAID_TOGETHER_MS, limit=5, for_ms=1000)  # as every manager does every moment

    assert keys(await second.take_owed(now_ms=NOW_MS + DAY_MS, limit=5, for_ms=1000)) == ["b.0.1.1"]


async def test_the_end_of_a_task_is_told_by_another_manager_in_the_same_words(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", reply_to="caller"))
    done = await move(first, failed("a.0.1.1", traceback="Traceback …"))

    taken = await second.take_owed(now_ms=NOW_MS + DAY_MS, limit=5, for_ms=1000)

    in_order = sorted(done.owed, key=lambda owed: owed.key)
    assert [(each.key, each.publication) for each in taken] == [(each.key, each.publication) for each in in_order]


async def test_what_another_manager_sent_after_the_hold_can_time_out(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    nodes = Nodes("gw-7", timeout_s=30.0)
    begun = await move(first, begin("a"), route=nodes)
    taken = await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=5, for_ms=1000)
    await pay(second, *keys(taken))
    await first.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=5, for_ms=1000)  # as every manager does every moment

    done = await move(first, due("a", 0, begun.due_ms[0]), route=nodes)

    assert (done.step_outcome, done.outcome) == ("timed_out", Outcome.TIMED_OUT)


async def test_what_another_manager_sent_after_the_hold_is_not_sent_again_by_one_that_had_sent_a_part_of_it(
    open_store: OpenStore,
) -> None:
    first, second = await open_store(), await open_store()
    await moved(first, begin("a"), begin("b"))
    taken = await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=5, for_ms=1000)
    await pay(second, *keys(taken))

    await pay(first, "a.0.1.1")

    assert await first.take_owed(now_ms=NOW_MS + HOLD_OWED_MS + 1, limit=5, for_ms=1000) == []


async def test_what_was_too_much_to_take_at_once_does_not_time_out(store: FullStore) -> None:
    begun = await moved(store, begin("a"), begin("b"))
    assert keys(await store.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=1, for_ms=1000)) == ["a.0.1.1"]

    done = await move(store, due("b", 0, begun[1].due_ms[0]))

    assert (done.step_outcome, len(done.due_ms)) == (None, 1)


async def test_a_large_group_is_taken_over_whole(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    names = [f"t-{number:03}" for number in range(250)]
    await moved(first, *(begin(name) for name in names))

    taken = [
        key
        for limit in (1, 120, 1000)
        for key in keys(await second.take_owed(now_ms=NOW_MS + HOLD_OWED_MS, limit=limit, for_ms=1000))
    ]

    assert sorted(taken) == [f"{name}.0.1.1" for name in names]
    await pay(second, *taken)
    assert await first.take_owed(now_ms=NOW_MS + DAY_MS, limit=1000, for_ms=1000) == []


async def test_what_was_held_by_a_clock_that_has_gone_back_is_free(store: FullStore) -> None:
    await move(store, begin("a"))

    assert keys(await store.take_owed(now_ms=NOW_MS - DAY_MS, limit=5, for_ms=1000)) == ["a.0.1.1"]


async def test_forgetting_a_task_forgets_its_steps_and_then_its_plan(store: FullStore, run_sql: RunSql) -> None:
    plan = fan(2)
    await moved(store, begin("a", plan), begin("b", SINGLE))
    await move(store, failed("a.0.1.1"))
    short = Retention(task_s=60, payload_s=60)
    later_ms = NOW_MS + DAY_MS // 2

    assert await store.forget(short, now_ms=later_ms, limit=100) == 1

    assert await store.steps(TaskId("a")) == []
    assert await run_sql("SELECT count(*) FROM steps") == 1
    assert await run_sql("SELECT count(*) FROM plans") == 2
    await store.forget(short, now_ms=NOW_MS + 2 * DAY_MS, limit=100)
    assert await run_sql("SELECT count(*) FROM plans") == 1
    assert await store.plan_of(TaskId("b")) == SINGLE


async def test_a_plan_with_a_name_is_kept(store: FullStore) -> None:
    await store.put_plan(SINGLE, now_ms=NOW_MS)

    await store.forget(Retention(), now_ms=NOW_MS + 9 * DAY_MS, limit=100)

    assert await store.plan(SINGLE.name) == SINGLE


async def test_a_final_result_can_wait_where_a_reply_tells_the_caller(open_store: OpenStore) -> None:
    store = await open_store()
    await move(store, begin("a", reply_to="caller"))
    await move(store, begin("b"))
    told, heard_by_listeners_alone = await move(store, answer("a.0.1.1")), await move(store, answer("b.0.1.1"))

    assert {each.key: each.can_wait for each in told.owed} == {"a.0.reply.caller": False, "a.0.final.0": True}
    assert {each.key: each.can_wait for each in heard_by_listeners_alone.owed} == {"b.0.final.0": False}
