"""Compensations where moves are decided before they are written: what a kill leaves, and who goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.contract.store.routed_words import answer, begin, failed, states
from tests.contract.store.words import NOW_MS

from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import Verdict
from canoa.vocabulary import ActionName, TaskId

if TYPE_CHECKING:
    from tests.unit.store.desks import Desk

A = TaskId("a")
SHOP = Plan(
    name="order",
    steps=(
        Step(name="charge", action=ActionName("shop.charge"), compensate=ActionName("shop.refund")),
        Step(name="ship", action=ActionName("shop.ship"), after=("charge",)),
    ),
)
REFUND = "a.2.1.1"


async def undoing(desk: Desk) -> None:
    """The refund is out."""
    await desk.moved(begin("a", SHOP))
    await desk.moved(answer("a.0.1.1", {"id": "ch-1"}))
    await desk.moved(failed("a.1.1.1"))


async def test_a_compensation_leaves_at_once_like_any_attempt(desk: Desk) -> None:
    await undoing(desk)

    assert desk.left == ["a.0.1.1", "a.1.1.1", REFUND]


async def test_that_a_compensation_was_sent_is_written_with_what_began_it(desk: Desk) -> None:
    await undoing(desk)

    assert desk.rows("SELECT step, state FROM steps ORDER BY step") == [(0, "ended"), (1, "ended"), (2, "sent")]


async def test_after_a_kill_the_answer_to_a_compensation_counts_and_ends_the_task(desk: Desk, other: Desk) -> None:
    await undoing(desk)

    (done,) = await other.moved(answer(REFUND, after_ms=300))

    assert (done.verdict, done.outcome) == (Verdict.TAKEN, Outcome.FAILED)


async def test_whoever_takes_over_a_task_that_runs_does_not_take_its_compensations_for_sent(
    desk: Desk, other: Desk
) -> None:
    await desk.moved(begin("a", SHOP))

    restored = await other.store.restore(now_ms=NOW_MS + 60_000)

    assert restored == 1
    assert states(await other.store.steps(A)) == ["sent", "blocked"]
    assert other.rows("SELECT step FROM steps") == [(0,)]


async def test_whoever_takes_over_a_task_that_is_undone_finds_nothing_to_restore(desk: Desk, other: Desk) -> None:
    await undoing(desk)

    assert await other.store.restore(now_ms=NOW_MS + 60_000) == 0
    assert states(await other.store.steps(A)) == ["ok", "failed", "sent"]


async def test_a_failure_and_the_end_of_its_compensation_may_be_written_at_once(desk: Desk) -> None:
    await desk.moved(begin("a", SHOP))
    await desk.moved(answer("a.0.1.1", {"id": "ch-1"}))

    first, second = await asyncio.gather(
        desk.begun(failed("a.1.1.1", after_ms=200)), desk.begun(answer(REFUND, after_ms=300))
    )

    assert (first[0].outcome, second[0].outcome) == (None, Outcome.FAILED)
    assert desk.rows("SELECT step, outcome FROM steps ORDER BY step") == [(0, "ok"), (1, "failed"), (2, "ok")]
