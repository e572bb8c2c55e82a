"""`cpu=True` actions run in processes that can be killed, and that may die without taking anything along."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.integration.pool import cpu_actions as lab
from tests.integration.pool.pool import dead_letter, opened, sample, until

from canoa import ActionFailed, ActionTimedOut, TaskCancelled, TaskPoisoned, TaskRefused
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.worker.worker import Worker


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    async with lab.app, lab.app.worker_with(WorkerSettings(processes=2)) as worker:
        yield worker


async def pid_in(note: Path) -> int:
    def text() -> str:
        return note.read_text() if note.exists() else ""

    await until(lambda: text() != "")
    return int(text())


async def is_gone(pid: int) -> None:
    await until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.usefixtures("worker")
async def test_it_runs_in_another_process_which_is_kept() -> None:
    first, second = await lab.process_id.call(), await lab.process_id.call()

    assert first == second != os.getpid()
    assert await asyncio.gather(*(lab.square.call(number) for number in range(20))) == [n * n for n in range(20)]
    assert len(multiprocessing.active_children()) <= 2


@pytest.mark.usefixtures("worker")
async def test_the_loop_goes_on_while_it_computes(tmp_path: Path) -> None:
    handle = await lab.sleeps.submit(str(tmp_path / "note"))
    await pid_in(tmp_path / "note")

    assert await lab.square.call(3) == 9
    await handle.cancel()


async def test_what_it_raises_is_told_and_retried(worker: Worker) -> None:
    with pytest.raises(ActionFailed, match="LookupError: no such thing") as caught:
        await lab.fails.call("no such thing")

    assert caught.value.attempts == 2
    assert "in fails" in caught.value.remote_traceback
    assert sample(worker, "canoa_retries_total", action="lab.fails") == 1
    with pytest.raises(ActionFailed, match="DoNotRetry: pointless") as caught:
        await lab.gives_up.call()
    assert caught.value.attempts == 1
    with pytest.raises(ActionFailed, match="SystemExit: 3"):
        await lab.exits.call()


@pytest.mark.usefixtures("worker")
async def test_it_knows_its_context() -> None:
    handle = await lab.tells.using(timeout=20, idempotency_key="order-7").submit()

    told = await handle.result(10)

    assert (told["task_id"], told["attempt"], told["idempotency_key"]) == (handle.id, 1, "order-7")
    assert 0 < told["remaining_s"] <= 20


@pytest.mark.usefixtures("worker")
async def test_what_cannot_be_sent_back_is_refused_and_the_process_goes_on() -> None:
    with pytest.raises(TaskRefused, match="a value of type 'object' cannot be sent as application/json"):
        await lab.unsendable.call()
    with pytest.raises(TaskRefused, match=r"the result of lab.large is 2,000,002 bytes, over the limit of 1,048,576"):
        await lab.large.call(2_000_000)
    assert len(await lab.large.call(1_000_000)) == 1_000_000
    raw = await lab.app.submit_raw("lab.square", b'{"number": "three"}')
    with pytest.raises(TaskRefused, match=r"lab.square: Expected `int`, got `str`, at `\$.number`; it takes"):
        await raw.result(10)


@pytest.mark.usefixtures("worker")
async def test_over_its_time_it_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    await lab.square.call(1)  # so that a process is there

    with pytest.raises(ActionTimedOut, match=r"ran longer than its timeout of 0.3 s"):
        await lab.sleeps.using(timeout=0.3).call(str(note))

    await is_gone(await pid_in(note))
    assert await lab.square.call(3) == 9


@pytest.mark.usefixtures("worker")
async def test_cancelled_it_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    handle = await lab.sleeps.submit(str(note))
    pid = await pid_in(note)

    await handle.cancel()

    with pytest.raises(TaskCancelled):
        await handle.result(1)
    await is_gone(pid)


@pytest.mark.usefixtures("worker")
async def test_time_limits_shorter_than_a_process_takes_to_start_leave_no_process_behind(tmp_path: Path) -> None:
    for number in range(5):
        with pytest.raises(ActionTimedOut):
            await lab.sleeps.using(timeout=0.01).call(str(tmp_path / f"{number}"))

    assert await lab.square.call(3) == 9
    await until(lambda: len(multiprocessing.active_children()) <= 2)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("how", ["killed", "code"])
async def test_a_process_that_dies_in_it_is_a_crash_and_max_crashes_of_them_are_poison(
    tmp_path: Path, how: str
) -> None:
    note = tmp_path / "runs"

    with pytest.raises(TaskPoisoned, match=r"the action's process ended with code (-9|4), 2 times; it waits among"):
        await lab.dies.call(str(note), how)

    assert note.read_text() == "xx"
    async with opened(lab.app) as raw:
        letter = await dead_letter(raw)
    assert (letter.headers["canoa-reason"], letter.headers["canoa-crashes"]) == ("poisoned", 1)
    assert await lab.square.call(3) == 9


@pytest.mark.usefixtures("worker")
async def test_after_a_crash_it_runs_again_and_its_caller_hears_nothing_of_it(tmp_path: Path) -> None:
    assert await lab.dies_once.call(str(tmp_path / "note")) == "recovered"


async def test_with_the_worker_go_its_processes(tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with lab.app:
        async with lab.app.worker_with(WorkerSettings(processes=1, drain_s=0.1)):
            await lab.sleeps.using(result="none").submit(str(note))
            pid = await pid_in(note)

        await is_gone(pid)
        assert (await lab.app.depth("lab.sleeps")).messages == 1  # handed back, for another worker


@pytest.mark.usefixtures("worker")
async def test_a_signal_to_the_whole_group_leaves_it_to_the_worker() -> None:
    child = await lab.process_id.call()

    os.kill(child, signal.SIGTERM)
    os.kill(child, signal.SIGINT)

    assert await lab.process_id.call() == child


@pytest.mark.usefixtures("worker")
async def test_it_stays_in_its_trace() -> None:
    handle = await lab.trace_id.submit()

    assert await handle.result() == handle.id


@pytest.mark.usefixtures("worker")
async def test_a_process_that_dies_idle_costs_the_next_action_nothing() -> None:
    child = await lab.process_id.call()
    os.kill(child, signal.SIGKILL)
    await is_gone(child)

    assert await lab.process_id.call() != child
