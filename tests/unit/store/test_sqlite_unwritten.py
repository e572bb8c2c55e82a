"""That a step was sent is written with its end, or after a moment: what others find until then, and after a kill."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import CHAIN, FETCH, ONE, Nodes, answer, begin, cancel, due, fan, states
from tests.contract.store.words import NOW_MS
from tests.unit.store.desks import WITHIN_S, Desk

from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.execution.step_restoring import ANSWERED_WITHIN_MS, WHY
from canoa.execution.step_settings import StepSettings
from canoa.store import sqlite_ahead
from canoa.vocabulary import NodeId, TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

A = TaskId("a")
LATER_MS = NOW_MS + 60_000


@pytest.fixture
async def other(desk: Desk) -> AsyncIterator[Desk]:
    """Another program on the same file. `desk` is left as a kill leaves it: nothing more is asked of it."""
    other = Desk(desk.path)
    await other.store.open()
    yield other
    await other.store.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110  # it is another program's word
            await asyncio.sleep(0.01)


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


async def test_a_step_whose_time_comes_soon_is_written_at_once(desk: Desk) -> None:
    """Whoever looks for it must find it."""
    desk.settings = StepSettings(travel_s=1.0)
    await desk.moved(begin("a", Plan(name="p", steps=(Step(name="s", action=FETCH, timeout_s=1.0),))))

    assert desk.count("steps") == 1
    assert [each.task_id for each in await desk.store.due_steps(now_ms=LATER_MS, limit=10)] == [A]


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
    await desk.moved(begin("a"))
    await other.store.restore(now_ms=LATER_MS)

    (found,) = await other.store.due_steps(now_ms=LATER_MS + ANSWERED_WITHIN_MS, limit=10)
    (moved,) = await other.moved(due("a", 0, found.due_ms))
    (step,) = await other.store.steps(A)

    assert (moved.verdict, other.left) == (Verdict.TAKEN, ["a.0.1.2"])
    assert [(each.node_id, each.outcome) for each in step.attempts] == [("", "returned"), ("gw-7", None)]
    assert step.attempts[0].why == WHY
    (end,) = await other.moved(answer("a.0.1.2"))
    assert end.outcome is Outcome.OK


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
    await desk.moved(begin("a"))
    await other.store.restore(now_ms=LATER_MS)
    (found,) = await other.store.due_steps(now_ms=LATER_MS + ANSWERED_WITHIN_MS, limit=10)
    await other.store.advance([due("a", 0, found.due_ms)], Nodes("gw-8"))

    (step,) = await desk.store.steps(A)

    assert [each.node_id for each in step.attempts] == ["", "gw-8"]
