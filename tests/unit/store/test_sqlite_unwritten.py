"""That a step was sent is written with its end, or after a moment: what others find until then, and after a kill."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import (
    CHAIN,
    FETCH,
    ONE,
    Nodes,
    answer,
    begin,
    cancel,
    due,
    failed,
    fan,
    lost,
    states,
)
from tests.contract.store.words import NOW_MS
from tests.unit.store.desks import WITHIN_S, Desk, turns

from canoa.clock import now_ms
from canoa.errors import StoreFull
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.execution.step_restoring import ANSWERED_WITHIN_MS, WHY
from canoa.execution.step_settings import StepSettings
from canoa.store import sqlite_ahead, sqlite_routed
from canoa.vocabulary import NodeId, TaskId
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.store.routed_port import Move

A = TaskId("a")
LATER_MS = NOW_MS + 60_000


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110  # it is another program's word
            await asyncio.sleep(0.01)


async def taken_by_the_broker(desk: Desk, move: Move) -> None:
    """Before it was written: so nothing is owed."""
    moved = desk.begun(move)
    await turns()
    await desk.moved(paid=desk.left)
    await moved


# --- What is written, and when ----------------------------------------------------------------------------------


async def test_a_step_that_ends_soon_is_written_once(desk: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    assert desk.count("steps") == 0

    await desk.moved(answer("a.0.1.1", "x"))
    assert desk.count("steps") == 1  # that it ended; the next one was only sent
    assert states(await desk.store.steps(A)) == ["ok", "sent", "blocked"]


async def test_a_step_that_lasts_is_written_by_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_ahead, "LASTING_S", 0.05)
    await desk.moved(begin("a", CHAIN), answer("a.0.1.1", "x"))
    await desk.moved(begin("b", CHAIN))
    await desk.moved(answer("b.0.1.1", "x"))

    await until(lambda: desk.count("steps") == 4)
    assert desk.rows("SELECT node_id, state, attempt, send FROM steps WHERE step = 1") == [("gw-7", "sent", 1, 1)] * 2
    assert desk.rows("SELECT standing FROM tasks") == [("running",)] * 2
    (moved,) = await desk.moved(answer("a.1.1.1", "y"))
    assert moved.verdict is Verdict.TAKEN


async def test_a_step_that_lasts_is_written_though_another_program_writes_more_often_than_we_look(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever holds a lease does."""
    monkeypatch.setattr(sqlite_ahead, "LASTING_S", 0.05)
    await desk.moved(begin("a", CHAIN))
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("CREATE TABLE anything (x)")

        def is_written() -> bool:
            other.execute("INSERT INTO anything VALUES (1)")
            return desk.count("steps") == 1

        await until(is_written)


async def test_a_step_that_lasts_times_out_though_its_time_was_moved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node answered others meanwhile: so it was looked at, and given more time."""
    monkeypatch.setattr(sqlite_ahead, "LASTING_S", 0.05)
    await taken_by_the_broker(desk, begin("a"))
    await until(lambda: desk.count("steps") == 1)
    (first,) = await desk.store.due_steps(now_ms=LATER_MS, limit=10)
    monkeypatch.setattr(ONE, "answered_ms", lambda _: NOW_MS + 20_000)
    await desk.moved(due("a", 0, first.due_ms))

    (second,) = await desk.store.due_steps(now_ms=LATER_MS, limit=10)
    assert second.due_ms == first.due_ms + 20_000
    (moved,) = await desk.moved(due("a", 0, second.due_ms))
    assert moved.step_outcome == "timed_out"


async def test_a_step_whose_time_comes_soon_is_written_at_once(desk: Desk) -> None:
    """Whoever looks for it must find it."""
    desk.settings = StepSettings(travel_s=1.0)
    await desk.moved(begin("a", Plan(name="p", steps=(Step(name="s", action=FETCH, timeout_s=1.0),))))

    assert desk.count("steps") == 1
    assert [each.task_id for each in await desk.store.due_steps(now_ms=LATER_MS, limit=10)] == [A]


async def test_looking_at_a_task_writes_nothing(desk: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    before = desk.store.writes.done

    assert states(await desk.store.steps(A)) == ["sent", "blocked", "blocked"]
    assert (desk.store.writes.done, desk.count("steps")) == (before, 0)


async def test_a_running_task_that_is_begun_again_stays_so(desk: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    await desk.moved(answer("a.0.1.1", "x"))
    desk.forget()
    await desk.moved(begin("a", CHAIN, reply_to="canoa.reply.x"))

    assert desk.rows("SELECT standing FROM tasks") == [("running",)]


async def test_a_disk_that_is_full_hides_nothing_that_is_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends again all that is out must not believe that nothing is."""
    await desk.moved(begin("a", CHAIN))

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_routed, "write", full)
        patch.setattr("canoa.store.sqlite_link.translated", lambda *_: StoreFull("no room"))
        with pytest.raises(StoreFull):
            await desk.store.open_steps(limit=10)
        assert states(await desk.store.steps(A)) == ["sent", "blocked", "blocked"]

    assert len(await desk.store.open_steps(limit=10)) == 1


async def test_whoever_asks_for_steps_finds_all_of_them(desk: Desk) -> None:
    await desk.moved(begin("a", fan(3)), answer("a.0.1.1", "x"))
    await desk.moved(begin("b"))

    assert await desk.store.queued_for() == {"gw-7": 4}
    assert len(await desk.store.sent_steps(NodeId("gw-7"), limit=10)) == 4
    assert len(await desk.store.open_steps(limit=10)) == 4
    assert states(await desk.store.steps(TaskId("b"))) == ["sent"]


async def test_closing_writes_what_is_out(desk: Desk) -> None:
    await desk.moved(begin("a"))
    await desk.store.aclose()

    assert desk.rows("SELECT task_id, node_id, state FROM steps") == [("a", "gw-7", "sent")]
    await desk.store.open()


async def test_a_task_that_is_not_remembered_is_known_all_the_same(desk: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    desk.forget()

    (moved,) = await desk.moved(answer("a.0.1.1", "x"))

    assert (moved.verdict, moved.node_id) == (Verdict.TAKEN, "gw-7")


# --- After a kill -----------------------------------------------------------------------------------------------


async def test_killed_before_it_was_written_an_answer_counts_all_the_same(desk: Desk, other: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    await desk.moved(answer("a.0.1.1", "x"))

    assert await other.store.restore(now_ms=LATER_MS) == 1
    assert states(await other.store.steps(A)) == ["ok", "sent", "blocked"]
    (moved,) = await other.moved(answer("a.1.1.1", "y"))
    assert (moved.verdict, other.left) == (Verdict.TAKEN, ["a.2.1.1"])
    assert states(await other.store.steps(A)) == ["ok", "ok", "sent"]


async def test_killed_before_it_was_written_and_never_answered_it_goes_to_a_node_again(desk: Desk, other: Desk) -> None:
    await taken_by_the_broker(desk, begin("a"))
    await other.store.restore(now_ms=LATER_MS)

    (found,) = await other.store.due_steps(now_ms=LATER_MS + ANSWERED_WITHIN_MS, limit=10)
    (moved,) = await other.moved(due("a", 0, found.due_ms))
    (step,) = await other.store.steps(A)

    assert (moved.verdict, moved.cancel, other.left) == (Verdict.TAKEN, ("a.0.1.1",), ["a.0.1.2"])
    assert [(each.node_id, each.outcome) for each in step.attempts] == [("", "returned"), ("gw-7", None)]
    assert step.attempts[0].why == WHY
    (end,) = await other.moved(answer("a.0.1.2"))
    assert end.outcome is Outcome.OK


@pytest.mark.parametrize(("retries", "is_final", "then"), [(None, False, "waiting"), (0, False, "failed"),
                                                           (2, False, "waiting"), (2, True, "failed")])  # fmt: skip
async def test_killed_before_it_was_written_a_failure_is_repeated_as_the_plan_says(
    desk: Desk, other: Desk, retries: int | None, is_final: bool, then: str
) -> None:
    """Where only its node knows, once: the next node says how often."""
    await desk.moved(begin("a", Plan(name="p", steps=(Step(name="s", action=FETCH, retries=retries),))))
    await other.store.restore(now_ms=LATER_MS)

    await other.moved(failed("a.0.1.1", is_final=is_final))

    assert states(await other.store.steps(A)) == [then]


async def test_killed_before_it_was_written_it_can_be_cancelled_and_lost(desk: Desk, other: Desk) -> None:
    await desk.moved(begin("a"), begin("b"))
    await other.store.restore(now_ms=LATER_MS)

    (cancelled,) = await other.moved(cancel("a"))
    (again,) = await other.moved(lost("b.0.1.1", is_returned=True))

    assert (cancelled.outcome, cancelled.cancel) == (Outcome.CANCELLED, ("a.0.1.1",))
    assert (again.verdict, other.left) == (Verdict.TAKEN, ["b.0.1.2"])


async def test_what_the_broker_never_got_is_sent_again_and_given_time_once_more(desk: Desk, other: Desk) -> None:
    await desk.moved(begin("a"))
    await other.store.restore(now_ms=LATER_MS)
    (found,) = await other.store.due_steps(now_ms=LATER_MS + ANSWERED_WITHIN_MS, limit=10)
    await other.store.take_owed(now_ms=LATER_MS, limit=9, for_ms=60_000)

    (moved,) = await other.moved(due("a", 0, found.due_ms))

    assert (moved.due_ms, other.left) == ((found.due_ms + ANSWERED_WITHIN_MS,), [])


async def test_a_program_that_dies_beside_another_leaves_nothing_behind_that_is_owed(desk: Desk, other: Desk) -> None:
    """Though the other one began before, and has restored nothing of it."""
    await desk.moved(begin("a"))

    assert [each.key for each in await other.store.take_owed(now_ms=LATER_MS, limit=9, for_ms=1)] == ["a.0.1.1"]


async def test_killed_with_many_tasks_all_of_them_are_found(
    desk: Desk, other: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canoa.store.sqlite.PAGE", 7)
    await desk.moved(*(begin(f"t{number}", fan(3)) for number in range(20)))
    await desk.moved(*(answer(f"t{number}.0.1.1", "x") for number in range(10)))
    await desk.moved(cancel("t19"))

    assert await other.store.restore(now_ms=LATER_MS) == 10 * 3 + 9
    assert await other.store.restore(now_ms=LATER_MS) == 0  # they have rows now
    assert len(await other.store.open_steps(limit=100)) == 39


async def test_what_was_written_as_owed_is_sent_at_once_after_a_kill(desk: Desk, other: Desk) -> None:
    """Not only when nobody has answered for a while."""
    await desk.moved(begin("a"))
    await other.store.restore(now_ms=LATER_MS)

    assert [each.key for each in await other.store.take_owed(now_ms=LATER_MS, limit=9, for_ms=1)] == ["a.0.1.1"]


# --- Beside another program -------------------------------------------------------------------------------------


async def test_an_answer_that_comes_to_another_program_counts(desk: Desk, other: Desk) -> None:
    await desk.moved(begin("a", CHAIN))

    (moved,) = await other.moved(answer("a.0.1.1", "x"))
    (double,) = await desk.moved(answer("a.0.1.1", "x"))

    assert (moved.verdict, double.verdict) == (Verdict.TAKEN, Verdict.DOUBLE)
    assert states(await desk.store.steps(A)) == ["ok", "sent", "blocked"]


async def test_what_another_program_has_ended_is_not_out(desk: Desk, other: Desk) -> None:
    await desk.moved(begin("a", CHAIN))
    await desk.moved(answer("a.0.1.1", "x"))
    await other.store.advance([cancel("a")], ONE)

    assert states(await desk.store.steps(A)) == ["ok", "cancelled", "skipped"]
    assert await desk.store.open_steps(limit=10) == []


async def test_a_step_that_another_program_has_moved_on_stays_so(desk: Desk, other: Desk) -> None:
    await taken_by_the_broker(desk, begin("a"))
    await other.store.restore(now_ms=LATER_MS)
    (found,) = await other.store.due_steps(now_ms=LATER_MS + ANSWERED_WITHIN_MS, limit=10)
    await other.store.advance([due("a", 0, found.due_ms)], Nodes("gw-8"))

    (step,) = await desk.store.steps(A)

    assert [each.node_id for each in step.attempts] == ["", "gw-8"]


# --- Tasks that are new by their ids ----------------------------------------------------------------------------


async def test_a_new_task_is_not_looked_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_routed, "tasks", pytest.fail)
    opened_ms = now_ms()
    await until(lambda: now_ms() > opened_ms)  # an id of that millisecond may be older than the program

    (moved,) = await desk.moved(begin(new_task_id()))

    assert moved.verdict is Verdict.TAKEN


async def test_a_new_task_that_comes_twice_is_begun_once(desk: Desk) -> None:
    task_id = new_task_id()
    first, second = await desk.moved(begin(task_id), begin(task_id))
    (third,) = await desk.moved(begin(task_id))
    desk.forget()
    (fourth,) = await desk.moved(begin(task_id))

    assert [each.verdict for each in (first, second, third, fourth)] == [Verdict.TAKEN, *[Verdict.DOUBLE] * 3]
    assert desk.left == [f"{task_id}.0.1.1"]


async def test_a_task_that_another_program_has_begun_is_no_newcomer_for_long(desk: Desk, other: Desk) -> None:
    """It was believed to be new: its attempt runs in vain, and whatever came with it is as it should be."""
    task_id, neighbour = new_task_id(), new_task_id()
    await other.moved(begin(task_id))

    verdicts = [each.verdict for each in await desk.moved(begin(task_id), begin(neighbour))]
    (end,) = await desk.moved(answer(f"{task_id}.0.1.1"))

    assert verdicts == [Verdict.DOUBLE, Verdict.TAKEN]
    assert end.outcome is Outcome.OK
    assert [state for (state,) in desk.rows("SELECT standing FROM tasks ORDER BY standing")] == ["ok", "waiting"]
