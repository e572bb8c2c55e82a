"""Runs what is ready, at most `concurrency` at a time.

Runners are tasks that start when there is work and end when there is none. Each takes one job after the other; before
it starts one it makes sure that another runner stands by, in case the job waits. So a hundred jobs that never wait cost
two tasks, and a hundred that do run at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Job = TypeVar("Job")

TURN_S = 0.01
"""How long a runner may go on without a break: longer starves heartbeats and other runners."""

STOP_WITHIN_S = 5.0
"""How long a cancelled job may take to end. One that will not is left behind: its worker's end must not wait for it."""


class RunnerTask(asyncio.Task[None]):
    """Knows whether it was cancelled by the very job that it runs, and not from outside."""

    is_cancelled_from_within = False

    def cancel(self, msg: object = None) -> bool:
        if asyncio.current_task(self.get_loop()) is self:
            self.is_cancelled_from_within = True
        return super().cancel(msg)


class Lane(Generic[Job]):
    """`run` is awaited for each job and must not raise."""

    def __init__(self, name: str, concurrency: int, run: Callable[[Job], Awaitable[None]]) -> None:
        self.name = name
        self.concurrency = concurrency
        self.running = 0
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._urgent: list[tuple[int, int, Job]] = []
        self._order = itertools.count()
        self._runners: set[RunnerTask] = set()
        self._active = 0  # runners that may still take a job; a task is in the set for a turn longer
        self._standing_by = 0
        self._is_paused = False
        self._is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    def push(self, job: Job, priority: int | None = None) -> None:
        """Higher priorities first, equal ones in order."""
        if priority:
            heapq.heappush(self._urgent, (-priority, next(self._order), job))
        else:
            self._ready.append(job)
        self._stand_by()

    def take_unstarted(self) -> list[Job]:
        """Everything that waits, most urgent first; it is no longer ours."""
        jobs = [heapq.heappop(self._urgent)[2] for _ in range(len(self._urgent))]
        jobs += self._ready
        self._ready.clear()
        return jobs

    def take_waiting(self, is_wanted: Callable[[Job], bool]) -> list[Job]:
        """Those of what waits that are wanted, most urgent first; they are no longer ours."""
        urgent = sorted(each for each in self._urgent if is_wanted(each[2]))
        ready = [job for job in self._ready if is_wanted(job)]
        if urgent:
            self._urgent = [each for each in self._urgent if not is_wanted(each[2])]
            heapq.heapify(self._urgent)
        if ready:
            self._ready = deque(job for job in self._ready if not is_wanted(job))
        return [job for _, _, job in urgent] + ready

    @property
    def waiting(self) -> int:
        return len(self._ready) + len(self._urgent)

    def hold(self) -> None:
        """Start nothing new."""
        self._is_paused = True

    async def pause(self) -> None:
        """Start nothing new, and return once nothing runs."""
        self.hold()
        await self._idle.wait()

    def resume(self) -> None:
        self._is_paused = False
        self._stand_by()

    async def stop(self) -> None:
        """End the runners, whatever they do."""
        self._is_paused = self._is_stopped = True
        for runner in self._runners:
            runner.cancel()
        if self._runners:
            await asyncio.wait(self._runners, timeout=STOP_WITHIN_S)

    def _stand_by(self) -> None:
        """One runner that has not started yet is enough: it calls the next."""
        if self._standing_by or self._is_paused or self._active >= self.concurrency:
            return
        if self._ready or self._urgent:
            self._standing_by += 1
            self._active += 1
            runner = RunnerTask(self._take_turns(), loop=self._loop, name=f"lane[{self.name}].runner")
            self._runners.add(runner)
            runner.add_done_callback(self._runners.discard)

    async def _take_turns(self) -> None:
        self._standing_by -= 1
        try:
            await self._take_jobs(self._loop.time() + TURN_S)
        finally:
            self._active -= 1
            self._stand_by()

    async def _take_jobs(self, turn_ends_s: float) -> None:
        own_task = asyncio.current_task()
        assert isinstance(own_task, RunnerTask)
        while (self._ready or self._urgent) and not self._is_paused:
            job = heapq.heappop(self._urgent)[2] if self._urgent else self._ready.popleft()
            self._stand_by()
            self.running += 1
            self._idle.clear()
            try:
                await self._run(job)
            finally:
                self.running -= 1
                if not self.running:
                    self._idle.set()
            if own_task.cancelling() and not self._is_stopped:
                await _shake_off(own_task)
            if self._loop.time() > turn_ends_s:
                await asyncio.sleep(0)
                turn_ends_s = self._loop.time() + TURN_S


async def _shake_off(task: RunnerTask) -> None:
    """A job cancelled the task it ran in and ended all the same: the next job must not be hit by it."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        pass
    while task.uncancel():
        pass
    task.is_cancelled_from_within = False
