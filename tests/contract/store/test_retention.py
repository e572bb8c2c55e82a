"""What is forgotten, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import NOW_MS, accepted, applied, bury, ended, redrive, result_body, row

from canoa.execution.outcome import Outcome
from canoa.store.port import Retention
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from canoa.store.port import Store

KEPT = Retention(task_s=100, payload_s=10, letter_s=1000)


async def forget(store: Store, *, after_s: float, limit: int = 100) -> int:
    return await store.forget(KEPT, now_ms=NOW_MS + round(after_s * 1000), limit=limit)


@pytest.fixture
async def ended_now(store: Store) -> Store:
    """Task a has ended well, task b badly."""
    await accepted(store, "a", "b")
    await ended(store, "a", ended_ms=NOW_MS)
    await ended(store, "b", Outcome.FAILED, ended_ms=NOW_MS)
    return store


async def test_an_ended_task_is_forgotten_with_its_result(ended_now: Store) -> None:
    assert await forget(ended_now, after_s=9) == 0
    assert await forget(ended_now, after_s=99) == 2  # the payloads
    assert await result_body(ended_now, "a") == b"1"

    assert await forget(ended_now, after_s=101) == 2

    assert await ended_now.task(TaskId("a")) is None
    assert await ended_now.result(TaskId("a")) is None


async def test_arguments_are_forgotten_before_results(ended_now: Store) -> None:
    """So a letter from elsewhere is no longer told apart; what the task's own end left is."""
    await forget(ended_now, after_s=11)

    assert (await row(ended_now, "a")).outcome is Outcome.OK
    assert await result_body(ended_now, "a") == b"1"
    assert await applied(ended_now, bury("b", dead_ms=NOW_MS + 10**6)) == [False]


async def test_a_letter_outlives_its_task_and_can_still_be_sent_again(ended_now: Store) -> None:
    await forget(ended_now, after_s=101)

    assert await applied(ended_now, redrive("b")) == [True]
    (sent,) = await ended_now.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)
    assert sent.publication.message.body == b'{"width": 100}'


async def test_letters_are_forgotten_also_the_redriven_ones(ended_now: Store) -> None:
    await applied(ended_now, bury("c"), redrive("b"), redrive("c"))
    await forget(ended_now, after_s=999)
    assert await ended_now.letter(TaskId("b")) is not None

    await forget(ended_now, after_s=1001)

    assert await ended_now.letter(TaskId("b")) is None
    assert await ended_now.letter(TaskId("c")) is None


async def test_a_task_that_has_not_ended_is_never_forgotten(store: Store) -> None:
    await accepted(store, "a")

    assert await forget(store, after_s=10**9) == 0
    assert [task.id for task in await store.unfinished(limit=10)] == ["a"]


async def test_a_redriven_task_is_kept_until_it_ends_again(ended_now: Store) -> None:
    await applied(ended_now, redrive("b"))

    await forget(ended_now, after_s=500)

    assert [task.id for task in await ended_now.unfinished(limit=10)] == ["b"]


async def test_forgetting_goes_in_steps(store: Store) -> None:
    names = [f"{number}" for number in range(25)]
    await accepted(store, *names)
    for name in names:
        await ended(store, name, ended_ms=NOW_MS)

    assert [await forget(store, after_s=101, limit=10) for _ in range(4)] == [10, 10, 5, 0]


async def test_limits_and_slots_that_say_nothing_any_more_are_forgotten(store: Store) -> None:
    await store.reserve("mail", count=1, per_ms=100, burst=1, now_ms=NOW_MS, within_ms=0)
    await store.take_slot("customer:1", "a", limit=1, now_ms=NOW_MS, for_ms=1000)
    await store.lease("timers", "me", now_ms=NOW_MS, for_ms=1000)

    assert await forget(store, after_s=0.05) == 0
    assert await forget(store, after_s=2) == 2

    lease = await store.lease("timers", "you", now_ms=NOW_MS + 2000, for_ms=1000)
    assert lease is not None
    assert lease.epoch == 2


async def test_a_clock_that_jumps_ahead_by_a_year_forgets_nothing(ended_now: Store) -> None:
    assert await forget(ended_now, after_s=365 * 86_400) == 0

    assert await result_body(ended_now, "a") == b"1"
    assert await ended_now.letter(TaskId("b")) is not None


async def test_what_is_over_is_forgotten_when_something_happens_again(ended_now: Store) -> None:
    """A store in which nothing happened for days was only quiet."""
    days_s = 3 * 86_400
    assert await forget(ended_now, after_s=days_s) == 0

    await accepted(ended_now, "c", at_ms=NOW_MS + days_s * 1000)

    assert await forget(ended_now, after_s=days_s) == 3  # two tasks and a letter
    assert await ended_now.task(TaskId("a")) is None


async def test_limits_are_forgotten_also_where_no_task_came_for_long(ended_now: Store) -> None:
    await ended_now.reserve("mail", count=1, per_ms=100, burst=1, now_ms=NOW_MS, within_ms=0)

    assert await forget(ended_now, after_s=3 * 86_400) == 1
