"""Queue time and run time have limits of their own: the worker's clock and the caller's end a task, never silence."""

import asyncio
import threading

import pytest
from tests.integration.pool.pool import Gate, dead_letter, sample, until

from canoa import ActionTimedOut, Canoa, Context, TaskExpired
from canoa.broker.port import Broker


async def test_a_coroutine_over_its_time_is_interrupted_where_it_waits(memory_app: Canoa) -> None:
    tidied: list[str] = []

    @memory_app.action(timeout=0.02)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(5)
        finally:
            tidied.append(f"flag {ctx.is_cancelled}")

    async with memory_app.worker() as worker:
        with pytest.raises(ActionTimedOut, match=r"ran longer than its timeout of 0.02 s"):
            await slow.call()

        assert sample(worker, "canoa_actions_total", action="shop.slow", layer="CLOUD", outcome="timed_out") == 1
        await until(lambda: worker.in_progress == 0)
    assert tidied == ["flag True"]


async def test_a_thread_over_its_time_is_told_by_its_flag_and_its_caller_at_once(memory_app: Canoa) -> None:
    saw_flag = threading.Event()

    @memory_app.action(timeout=0.02)
    def slow(ctx: Context) -> None:
        while not ctx.is_cancelled:
            threading.Event().wait(0.005)
        saw_flag.set()

    async with memory_app.worker():
        with pytest.raises(ActionTimedOut):
            await slow.call()
        assert await asyncio.to_thread(saw_flag.wait, 10)


async def test_what_swallows_its_time_out_and_answers_has_answered(memory_app: Canoa) -> None:
    @memory_app.action(timeout=0.02)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return "partial"
        return "whole"

    async with memory_app.worker(concurrency=1):
        assert await stubborn.call() == "partial"
        assert await stubborn.call() == "partial"  # and its runner is as good as new


async def test_a_task_not_started_in_time_expires_at_the_worker(app: Canoa) -> None:
    gate, ran = Gate(), 0

    @app.action
    async def held() -> None:
        nonlocal ran
        ran += 1
        await gate.hold()

    async with app.worker(concurrency=1) as worker:
        first = await held.submit()
        await gate.has(1)
        late = await held.using(queue_timeout=0.05).submit()
        await asyncio.sleep(0.06)
        gate.open()

        await first.result(10)
        with pytest.raises(TaskExpired, match=r"not started before its deadline \(queue_timeout\)"):
            await late.result(10)
        assert ran == 1
        assert sample(worker, "canoa_actions_total", action="shop.held", layer="CLOUD", outcome="expired") == 1


async def test_an_expired_task_that_nobody_waits_for_is_a_dead_letter(memory_app: Canoa, memory_raw: Broker) -> None:
    @memory_app.action
    async def never() -> None: ...

    async with memory_app.worker():
        pass
    await never.using(result="none", queue_timeout=0.01).submit()
    await asyncio.sleep(0.02)

    async with memory_app.worker():
        letter = await dead_letter(memory_raw)

    assert letter.headers["canoa-reason"] == "expired"


async def test_time_in_the_queue_does_not_count_as_run_time(memory_app: Canoa) -> None:
    @memory_app.action(timeout=0.2)
    async def quick() -> str:
        await asyncio.sleep(0)
        return "ran"

    async with memory_app.worker():
        pass
    handle = await quick.submit()
    await asyncio.sleep(0.25)

    async with memory_app.worker():
        assert await handle.result(10) == "ran"
