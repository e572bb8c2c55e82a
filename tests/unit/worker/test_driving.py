"""A coroutine driven inside a longer-lived task behaves as in a task of its own, and leaves no trace there."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import pytest

from canoa.worker.driving import Attempt, Interruption, drive

if TYPE_CHECKING:
    from collections.abc import Coroutine

colour: ContextVar[str] = ContextVar("colour", default="none")


def cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def run(work: Coroutine[Any, Any, Any], attempt: Attempt, limit_s: float | None = None) -> Any:
    """As a worker does it."""
    try:
        return await drive(work, copy_context(), lambda: attempt.begin_wait(limit_s))
    finally:
        attempt.end()


async def test_results_and_errors_come_through() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("gone")

    assert await run(asyncio.sleep(0, "slept"), Attempt()) == "slept"
    with pytest.raises(KeyError, match="gone"):
        await run(fails(), Attempt())


async def test_variables_set_in_one_run_are_seen_there_and_nowhere_else() -> None:
    async def paint(name: str) -> list[str]:
        before = colour.get()
        colour.set(name)
        await asyncio.sleep(0)
        inner = await asyncio.create_task(asyncio.sleep(0, colour.get()))
        return [before, colour.get(), inner]

    first = await run(paint("red"), Attempt())
    second, third = await asyncio.gather(run(paint("green"), Attempt()), run(paint("blue"), Attempt()))

    assert first == ["none", "red", "red"]
    assert second == ["none", "green", "green"]
    assert third == ["none", "blue", "blue"]
    assert colour.get() == "none"


async def test_a_run_that_never_waits_cannot_be_interrupted() -> None:
    attempt = Attempt()

    async def looks() -> bool:
        attempt.interrupt(Interruption.CANCELLED)
        return attempt.is_waiting

    assert await run(looks(), attempt) is False
    assert attempt.interrupted_by is None
    assert cancellations() == 0


@pytest.mark.parametrize("why", list(Interruption))
async def test_an_interrupted_run_ends_with_cancellation_and_its_task_goes_on(why: Interruption) -> None:
    attempt = Attempt()
    told: list[str] = []
    attempt.on_interrupt = lambda: told.append("told")
    loop = asyncio.get_running_loop()
    loop.call_soon(attempt.interrupt, why)
    loop.call_soon(attempt.interrupt, Interruption.DRAINED)

    with pytest.raises(asyncio.CancelledError):
        await run(asyncio.Event().wait(), attempt)

    assert attempt.interrupted_by is why  # the first reason stays
    assert told == ["told"]
    assert cancellations() == 0
    assert await run(asyncio.sleep(0, "next"), Attempt()) == "next"


async def test_the_time_limit_interrupts_and_its_timer_ends_with_the_run() -> None:
    slow, quick = Attempt(), Attempt()

    with pytest.raises(asyncio.CancelledError):
        await run(asyncio.Event().wait(), slow, limit_s=0.01)
    assert await run(asyncio.sleep(0, "in time"), quick, limit_s=0.01) == "in time"
    await asyncio.sleep(0.02)

    assert slow.interrupted_by is Interruption.TIMED_OUT
    assert quick.interrupted_by is None
    assert cancellations() == 0


async def test_a_run_that_swallows_its_cancellation_gives_its_result() -> None:
    attempt = Attempt()

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "tidied up"

    asyncio.get_running_loop().call_soon(attempt.interrupt, Interruption.CANCELLED)

    assert await run(stubborn(), attempt) == "tidied up"
    assert attempt.interrupted_by is Interruption.CANCELLED
    assert cancellations() == 0


async def test_an_interruption_in_the_turn_in_which_the_wait_ended_still_counts_once() -> None:
    attempt = Attempt()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def both() -> None:
        ready.set_result("ready")
        attempt.interrupt(Interruption.TIMED_OUT)

    async def waits() -> str:
        return await ready

    asyncio.get_running_loop().call_soon(both)

    with pytest.raises(asyncio.CancelledError):
        await run(waits(), attempt)
    assert cancellations() == 0
    await asyncio.sleep(0)  # nothing is left to hit the next wait


async def test_time_limits_inside_a_run_are_its_own() -> None:
    async def limits_itself() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "own limit"
        return "no limit"

    attempt = Attempt()

    assert await run(limits_itself(), attempt, limit_s=5) == "own limit"
    assert attempt.interrupted_by is None
    assert cancellations() == 0


async def test_a_task_group_inside_a_run_raises_what_its_tasks_raised() -> None:
    async def fails() -> None:
        raise KeyError("inner")

    async def groups() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await run(groups(), Attempt())

    assert caught.group_contains(KeyError, match="inner")
    assert cancellations() == 0


async def test_interrupting_a_run_cancels_the_tasks_of_its_group() -> None:
    attempt = Attempt()
    ended: list[str] = []

    async def member(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def groups() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(member("a"))
            tasks.create_task(member("b"))

    asyncio.get_running_loop().call_later(0.01, attempt.interrupt, Interruption.CANCELLED)
    with pytest.raises(asyncio.CancelledError):
        await run(groups(), attempt)

    assert sorted(ended) == ["a", "b"]
    assert cancellations() == 0


async def test_a_run_that_is_abandoned_is_closed() -> None:
    closed: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    driven = drive(waits(), copy_context(), lambda: None)
    driven.send(None)
    driven.close()

    assert closed == ["closed"]
