"""A lane runs everything that is pushed, in order of priority, and never more at once than it may."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from canoa.worker.lane import Lane

WITHIN_S = 5.0


class Work:
    """Jobs that run until they are let go, or at once where `waits` is off; remembers who started."""

    def __init__(self, *, waits: bool = True) -> None:
        self.started: list[str] = []
        self.most_at_once = 0
        self._waits = waits
        self._running = 0
        self._let_go = asyncio.Event()
        self._came = asyncio.Event()

    async def __call__(self, job: str) -> None:
        self.started.append(job)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        self._came.set()
        try:
            if self._waits:
                await self._let_go.wait()
        finally:
            self._running -= 1

    def let_go(self) -> None:
        self._let_go.set()

    async def has_started(self, count: int) -> list[str]:
        async with asyncio.timeout(WITHIN_S):
            while len(self.started) < count:
                self._came.clear()
                await self._came.wait()
        return self.started


async def turns(count: int = 20) -> None:
    """Let everything happen that is about to happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_waiting_jobs_run_at_once_up_to_the_concurrency() -> None:
    work = Work()
    lane = Lane("test", 3, work)

    for job in "abcde":
        lane.push(job)
    await turns()

    assert work.started == list("abc")
    assert (lane.running, lane.waiting) == (3, 2)
    work.let_go()
    await work.has_started(5)
    assert work.most_at_once == 3


@pytest.mark.parametrize("concurrency", [1, 2, 50])
async def test_jobs_that_never_wait_need_two_tasks_at_most(concurrency: int) -> None:
    work = Work(waits=False)
    lane = Lane("test", concurrency, work)
    before = len(asyncio.all_tasks())

    for number in range(500):
        lane.push(str(number))

    assert len(asyncio.all_tasks()) - before <= 2
    assert await work.has_started(500) == [str(number) for number in range(500)]


async def test_higher_priorities_start_first_and_equal_ones_in_order() -> None:
    work = Work()
    lane = Lane("test", 1, work)
    lane.push("running")
    await work.has_started(1)

    for job, priority in [("a", None), ("b", 1), ("c", 9), ("d", 0), ("e", 9), ("f", 1)]:
        lane.push(job, priority)
    work.let_go()

    assert await work.has_started(7) == ["running", "c", "e", "b", "f", "a", "d"]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_job_pushed_in_the_very_turn_in_which_the_last_one_ended_is_run(concurrency: int) -> None:
    work = Work(waits=False)
    lane = Lane("test", concurrency, work)
    loop = asyncio.get_running_loop()

    for number in range(concurrency):
        lane.push(f"first {number}")
    loop.call_soon(lane.push, "second")  # after the runners' turn, before anybody hears that they ended

    await work.has_started(concurrency + 1)


async def test_a_paused_lane_starts_nothing_and_says_when_nothing_runs() -> None:
    work = Work()
    lane = Lane("test", 5, work)
    lane.push("running")
    await work.has_started(1)

    pausing = asyncio.create_task(lane.pause())
    lane.push("later")
    await turns()
    assert not pausing.done()
    work.let_go()
    await pausing

    assert work.started == ["running"]
    lane.resume()
    assert await work.has_started(2) == ["running", "later"]


async def test_what_has_not_started_can_be_taken_back_most_urgent_first() -> None:
    work = Work()
    lane = Lane("test", 1, work)
    lane.push("running")
    await work.has_started(1)
    for job, priority in [("a", None), ("b", 3), ("c", 7)]:
        lane.push(job, priority)

    assert lane.take_unstarted() == ["c", "b", "a"]

    assert lane.waiting == 0
    work.let_go()
    await turns()
    assert work.started == ["running"]


async def test_a_long_row_of_jobs_gives_way_to_others() -> None:
    ticks = 0
    is_last = asyncio.Event()

    async def busy(job: int) -> None:
        time.sleep(0.001)  # noqa: ASYNC251  # a job that computes and never waits
        if job == 199:
            is_last.set()

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        asyncio.get_running_loop().call_soon(tick)

    lane = Lane("test", 1, busy)
    for number in range(200):
        lane.push(number)
    tick()
    async with asyncio.timeout(WITHIN_S):
        await is_last.wait()

    assert ticks >= 10  # 200 ms of work, in turns of 10 ms


async def test_stopping_ends_what_runs() -> None:
    work = Work()
    lane = Lane("test", 2, work)
    lane.push("endless")
    await work.has_started(1)

    await lane.stop()

    assert lane.running == 0
    lane.push("too late")
    await turns()
    assert work.started == ["endless"]


async def test_stopping_is_not_held_up_by_a_job_that_will_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canoa.worker.lane.STOP_WITHIN_S", 0.05)
    gives_in = asyncio.Event()

    async def stubborn(_: str) -> None:
        while not gives_in.is_set():
            try:
                await gives_in.wait()
            except asyncio.CancelledError:
                continue

    lane = Lane("test", 1, stubborn)
    lane.push("stubborn")
    await turns()

    async with asyncio.timeout(WITHIN_S):
        await lane.stop()

    assert lane.running == 1
    gives_in.set()
    await turns()
    assert lane.running == 0


@pytest.mark.parametrize("catches", [False, True])
async def test_a_cancellation_that_one_job_leaves_behind_does_not_hit_the_next(catches: bool) -> None:
    ended: list[tuple[str, int]] = []

    async def run(job: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        if job == "careless":
            task.cancel()
        if job != "careless" or catches:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        ended.append((job, task.cancelling()))

    lane = Lane("test", 1, run)
    lane.push("careless")
    lane.push("next")
    await turns()

    assert ended == [("careless", 1), ("next", 0)]


async def test_a_runner_that_is_ended_from_outside_leaves_no_job_behind() -> None:
    work = Work()
    lane = Lane("test", 1, work)
    lane.push("running")
    await work.has_started(1)
    lane.push("waiting")

    (runner,) = [task for task in asyncio.all_tasks() if task.get_name() == "lane[test].runner"]
    runner.cancel()

    assert await work.has_started(2) == ["running", "waiting"]
    work.let_go()


async def test_some_of_what_waits_can_be_taken_out_and_the_rest_runs_in_order() -> None:
    work = Work()
    lane = Lane("test", 1, work)
    for job in ("first", "a", "out 1", "b", "out 2"):
        lane.push(job)
    for job in ("c", "out 3"):
        lane.push(job, priority=5)
    await asyncio.sleep(0.01)

    taken = lane.take_waiting(lambda job: job.startswith("out"))

    assert taken == ["out 3", "out 1", "out 2"]
    work.let_go()
    await asyncio.sleep(0.01)
    assert sorted(work.started) == ["a", "b", "c", "first"]
    assert work.started.index("a") < work.started.index("b")
