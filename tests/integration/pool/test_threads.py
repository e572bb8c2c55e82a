"""Plain functions run in threads: beside each other, and beside the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar

import pytest
from tests.integration.pool.pool import Gate

from canoa import ActionFailed, Canoa
from canoa.wire import trace

colour: ContextVar[str] = ContextVar("colour", default="none")


async def test_blocking_actions_do_not_block_the_loop(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    def blocks() -> str:
        gate.hold_thread()
        return threading.current_thread().name

    @memory_app.action
    async def quick() -> str:
        return "quick"

    async with memory_app.worker(concurrency=5):
        handles = await blocks.submit_many([blocks.args()] * 4)
        await gate.has(4)
        assert await quick.call() == "quick"
        gate.open()

        names = {await handle.result(10) for handle in handles}
        assert len(names) == 4
        assert all(name.startswith("canoa-action") for name in names)


async def test_no_more_threads_run_at_once_than_the_worker_may(memory_app: Canoa) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    @memory_app.action
    def work(number: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)
        with lock:
            at_once -= 1
        return number

    async with memory_app.worker(concurrency=3):
        assert sorted([each async for each in work.map(range(30))]) == list(range(30))

    assert most == 3


@pytest.mark.parametrize("error", [StopIteration("end"), SystemExit(3), asyncio.CancelledError()])
async def test_whatever_a_thread_raises_ends_the_task_and_not_the_worker(
    memory_app: Canoa, error: BaseException
) -> None:
    @memory_app.action(timeout=5)
    def fails() -> None:
        raise error

    @memory_app.action
    def fine() -> str:
        return "fine"

    async with memory_app.worker(concurrency=1):
        with pytest.raises(ActionFailed, match=type(error).__name__):
            await fails.call()
        assert await fine.call() == "fine"


@pytest.mark.parametrize("error", [StopIteration("end"), SystemExit(3), asyncio.CancelledError()])
async def test_whatever_a_coroutine_raises_ends_the_task_and_not_the_worker(
    memory_app: Canoa, error: BaseException
) -> None:
    @memory_app.action(timeout=5)
    async def fails() -> None:
        await asyncio.sleep(0)
        raise error

    @memory_app.action
    async def fine() -> str:
        return "fine"

    async with memory_app.worker(concurrency=1):
        with pytest.raises(ActionFailed):
            await fails.call()
        assert await fine.call() == "fine"


async def test_variables_set_in_a_thread_are_gone_with_its_run(memory_app: Canoa) -> None:
    @memory_app.action
    def paint(name: str) -> str:
        before = colour.get()
        colour.set(name)
        return before

    async with memory_app.worker(concurrency=1):
        assert [await paint.call("red"), await paint.call("blue")] == ["none", "none"]
    assert colour.get() == "none"


async def test_a_thread_knows_its_trace(memory_app: Canoa) -> None:
    @memory_app.action
    def tells() -> str | None:
        traced = trace.current()
        return traced.trace_id if traced else None

    async with memory_app.worker():
        handle = await tells.submit()

        assert await handle.result(10) == handle.id


async def test_the_traceback_of_a_plain_function_begins_with_the_function(memory_app: Canoa) -> None:
    @memory_app.action
    def fails() -> None:
        raise LookupError("no such picture")

    async with memory_app.worker():
        with pytest.raises(ActionFailed) as caught:
            await fails.call()

    first = caught.value.remote_traceback.splitlines()[1]
    assert first.endswith("in fails")
