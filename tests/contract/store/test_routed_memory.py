"""What a manager remembers of open tasks is right, or not used: whoever else has moved or changed them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import (
    CHAIN,
    Nodes,
    answer,
    begin,
    cancel,
    data_of,
    due,
    failed,
    fan,
    move,
    moved,
    rerun,
    states,
    to_nodes,
)
from tests.contract.store.words import NOW_MS, accept, applied

from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore, RunSql

    from canoa.store.routed_port import FullStore

A = TaskId("a")


async def test_a_task_that_another_manager_moved_meanwhile_is_moved_on_from_there(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", CHAIN))
    await move(second, answer("a.0.1.1", "x"))

    third = await move(first, answer("a.1.1.1", "y"))
    last = await move(second, answer("a.2.1.1", "z"))

    assert (third.verdict, to_nodes(third), data_of(third.owed[0])) == (Verdict.TAKEN, ["a.2.1.1"], "y")
    assert last.outcome is Outcome.OK
    assert states(await first.steps(A)) == ["ok", "ok", "ok"]


async def test_a_join_is_unlocked_by_managers_who_remember_half_of_it(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", fan(4)))
    parts = to_nodes(await move(first, answer("a.0.1.1")))

    done = [await move(store, answer(part, part)) for store, part in zip((first, second) * 2, parts, strict=True)]

    assert [len(each.owed) for each in done] == [0, 0, 0, 1]
    assert list(data_of(done[-1].owed[0]).values()) == parts


async def test_an_answer_that_another_manager_took_is_not_taken_again(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await moved(first, begin("a"), begin("b", CHAIN))
    await moved(second, answer("a.0.1.1"), answer("b.0.1.1"))

    again = await moved(first, answer("a.0.1.1"), answer("b.0.1.1"), failed("b.0.1.1"))

    assert [each.verdict for each in again] == [Verdict.DOUBLE, Verdict.DOUBLE, Verdict.LATE]
    assert not any(each.owed for each in again)


async def test_a_task_that_another_manager_cancelled_is_not_moved(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", CHAIN))
    await move(second, cancel("a"))

    late = await move(first, answer("a.0.1.1"))

    assert (late.verdict, late.owed) == (Verdict.LATE, ())


async def test_an_attempt_that_another_manager_sent_anew_is_the_one_that_counts(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    nodes = Nodes("gw-7", retries=1)
    await move(first, begin("a"), route=nodes)
    failure = await move(second, failed("a.0.1.1"), route=nodes)
    await move(second, due("a", 0, failure.due_ms[0]), route=nodes)

    done = await move(first, answer("a.0.2.2", after_ms=5000), route=nodes)

    assert (done.verdict, done.outcome) == (Verdict.TAKEN, Outcome.OK)


async def test_whoever_asked_another_manager_hears_of_the_end_too(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", reply_to="one"))
    await move(second, begin("a", reply_to="two"))

    done = await move(first, answer("a.0.1.1"))

    assert [owed.publication.key for owed in done.owed][:2] == ["one", "two"]


async def test_what_a_recorder_changed_about_a_task_is_not_overwritten(store: FullStore) -> None:
    await move(store, begin("a", reply_to="one"))
    await applied(store, accept("a", reply_to="two"))

    done = await move(store, answer("a.0.1.1"))

    assert [owed.publication.key for owed in done.owed][:2] == ["one", "two"]


async def test_a_group_that_failed_leaves_nothing_remembered(store: FullStore) -> None:
    class Broken(Nodes):
        def is_known(self, action: str) -> bool:
            raise RuntimeError("a bug")

    await move(store, begin("a", CHAIN))

    with pytest.raises(RuntimeError, match="a bug"):
        await moved(store, answer("a.0.1.1", "lost"), begin("b"), route=Broken("gw-7"))

    done = await move(store, answer("a.0.1.1", "kept"))
    assert (done.verdict, data_of(done.owed[0])) == (Verdict.TAKEN, "kept")
    assert (await move(store, begin("b"))).verdict is Verdict.TAKEN


async def test_a_store_that_was_closed_remembers_nothing(open_store: OpenStore) -> None:
    await (await open_store()).aclose()  # makes the tables, so that both begin alike
    first = await open_store()
    await move(first, begin("a", CHAIN))
    await first.aclose()
    second = await open_store()
    await move(second, answer("a.0.1.1", "x"))
    await second.aclose()
    await first.open()

    again = await move(first, answer("a.0.1.1", "other"))

    assert (again.verdict, again.owed) == (Verdict.DOUBLE, ())


async def test_a_task_may_be_begun_ended_and_rerun_by_turns(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a", CHAIN))
    await move(second, failed("a.0.1.1"))
    await move(first, rerun("a"))

    done = await move(second, answer("a.0.1.2", after_ms=2000))

    assert (done.verdict, to_nodes(done)) == (Verdict.TAKEN, ["a.1.1.1"])


async def test_steps_to_which_nothing_happened_are_shown_without_a_row(store: FullStore, run_sql: RunSql) -> None:
    await move(store, begin("a", CHAIN))

    assert states(await store.steps(A)) == ["sent", "blocked", "blocked"]
    assert await run_sql("SELECT count(*) FROM steps") == 1


async def test_what_another_manager_could_not_send_yet_does_not_time_out(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()
    await move(first, begin("a"))

    done = await move(second, due("a", 0, NOW_MS + 40_000))

    assert (done.step_outcome, done.due_ms) == (None, (NOW_MS + 80_000,))
