"""Cancelling ends the handle at once; a worker that hears of it skips or interrupts the task."""

import asyncio

import pytest
from tests.contract.broker.inbox import letter, until_holding
from tests.integration.pool.pool import Gate, sample, until

from canoa import Canoa, Context, TaskCancelled
from canoa.broker.port import Broker
from canoa.worker.worker import Worker


def cancelled(worker: Worker, action: str) -> float:
    return sample(worker, "canoa_actions_total", action=action, layer="CLOUD", outcome="cancelled")


async def test_a_task_cancelled_before_it_starts_is_skipped(app: Canoa, raw: Broker) -> None:
    gate = Gate()

    @app.action
    async def held() -> None:
        await gate.hold()

    async with app.worker(concurrency=1) as worker:
        first, second = await held.submit(), await held.submit()
        await gate.has(1)

        await second.cancel()
        with pytest.raises(TaskCancelled, match=rf"task {second.id} \(shop.held\) was cancelled by its caller"):
            await second.result()
        await until(lambda: second.id in worker._cancelled)
        gate.open()
        await first.result(10)

        await until(lambda: cancelled(worker, "shop.held") == 1)
        assert gate.came == 1
    assert (await raw.depth("canoa.action.shop.held")).messages == 0


async def test_a_running_coroutine_is_interrupted(app: Canoa) -> None:
    gate = Gate()

    @app.action(retry=3)
    async def held() -> None:
        await gate.hold()

    async with app.worker() as worker:
        handle = await held.submit()
        await gate.has(1)

        await handle.cancel()

        await until(lambda: gate.ended == 1 and cancelled(worker, "shop.held") == 1)
        assert worker.in_progress == 0
        assert gate.came == 1  # a cancelled task is not tried again


async def test_a_running_thread_sees_its_flag_and_its_runner_is_free_at_once(memory_app: Canoa) -> None:
    gate = Gate()
    flags: list[bool] = []

    @memory_app.action
    def held(ctx: Context) -> None:
        gate.hold_thread(lambda: ctx.is_cancelled)
        flags.append(ctx.is_cancelled)

    async with memory_app.worker() as worker:
        handle = await held.submit()
        await gate.has(1)

        await handle.cancel()

        await until(lambda: cancelled(worker, "shop.held") == 1 and flags == [True])


async def test_after_its_end_cancelling_changes_nothing(memory_app: Canoa) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker() as worker:
        handle = await double.submit(2)
        assert await handle.result(10) == 4

        await handle.cancel()

        assert await handle.result() == 4
        assert cancelled(worker, "shop.double") == 0


async def test_cancelling_needs_no_worker(app: Canoa, raw: Broker) -> None:
    @app.action
    async def never() -> None: ...

    async with app.worker():
        pass
    handle = await never.submit()

    await handle.cancel()

    with pytest.raises(TaskCancelled):
        await handle.result()
    await until_holding(raw, "canoa.action.shop.never", 1)  # nobody heard: it may still run


async def test_an_action_that_cancels_itself_has_failed(memory_app: Canoa) -> None:
    runs = 0

    @memory_app.action
    async def gives_up() -> None:
        nonlocal runs
        runs += 1
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @memory_app.action
    async def groups() -> str:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
        return "whole"

    async with memory_app.worker(concurrency=1) as worker:
        with pytest.raises(Exception, match="CancelledError: the action was cancelled from within"):
            await gives_up.call()
        assert await groups.call() == "whole"  # the next one in the same runner feels nothing of it
        assert runs == 1
        assert sample(worker, "canoa_actions_total", action="shop.gives_up", layer="CLOUD", outcome="failed") == 1


async def test_a_notice_that_is_no_task_id_harms_nobody(memory_app: Canoa, memory_raw: Broker) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker():
        await memory_raw.publish(letter("", b"\xff\xfe", exchange="canoa.cancel"))
        assert await double.call(2) == 4


async def test_cancelling_from_another_program_than_the_workers(app: Canoa) -> None:
    """The notice goes to every worker, whoever runs the task."""
    gate = Gate()

    @app.action
    async def held() -> None:
        await gate.hold()

    async with app.worker() as one, app.worker() as other:
        handle = await held.submit()
        await gate.has(1)

        await handle.cancel()

        await until(lambda: cancelled(one, "shop.held") + cancelled(other, "shop.held") == 1)
        assert gate.ended == 1


async def test_a_program_that_ends_without_a_drain_gives_its_tasks_to_the_next_worker(app: Canoa, raw: Broker) -> None:
    """`asyncio.run` cancels every task that is left: that is no failure of the action."""
    gate = Gate()

    @app.action
    async def held() -> str:
        await gate.hold()
        return "by the next"

    async with app.worker():
        handle = await held.submit()
        await gate.has(1)
        (runner,) = [task for task in asyncio.all_tasks() if task.get_name() == "lane[main].runner"]

        runner.cancel()

        await gate.has(2)  # the same worker may be the next one
        gate.open()
        assert await handle.result(10) == "by the next"
