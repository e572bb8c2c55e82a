"""A caller that submits tasks to be kept at a steady pace, in a process of its own; prints how long results took.

`python -m benchmarks.keep.pacing <tasks per second> <seconds>`: the 99th percentile of the milliseconds from the end of
the action to its caller. He hears after the commit, so a result can be seen no later; now and then he looks whether it
is so.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.keep.contestants.canoa import app, told_at

if TYPE_CHECKING:
    from canoa.client.handle import Handle

TICKS_PER_S = 100
WARM_UP = 200
LOOK_AT_EVERY = 100
LATE_S = 0.5
"""A caller this far behind has not kept the pace that he was asked for."""

kept = told_at.using(result="keep")


class Caller:
    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self._count = 0
        self._looks: set[asyncio.Task[None]] = set()

    async def submit(self, count: int) -> None:
        """Return once all of them have been heard of."""
        handles = await kept.submit_many([told_at.args() for _ in range(count)])
        for handle in handles:
            handle.on_ended(partial(self._on_ended, handle))
        await asyncio.gather(*(handle.result() for handle in handles))

    def _on_ended(self, handle: Handle[float], ended: asyncio.Future[Any]) -> None:
        self.took_ms.append((time.time() - ended.result()) * 1000)
        self._count += 1
        if self._count % LOOK_AT_EVERY == 0:
            look = asyncio.create_task(_check_visible(handle.id))
            self._looks.add(look)

    async def looked(self) -> None:
        await asyncio.gather(*self._looks)


async def _check_visible(task_id: str) -> None:
    status = await app.handle(task_id).status()
    if status.state != "ended":
        raise AssertionError(f"the caller heard of task {task_id}, but the store says {status.state}")


async def pace(per_s: int, seconds: int) -> list[float]:
    async with app:
        await Caller().submit(WARM_UP)
        caller = Caller()
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for tick in range(seconds * TICKS_PER_S):
                due_s = began_s + tick / TICKS_PER_S
                await asyncio.sleep(due_s - time.monotonic())
                group.create_task(caller.submit(per_s // TICKS_PER_S))
            late_s = time.monotonic() - began_s - seconds
        if late_s > LATE_S:
            raise SystemExit(f"{per_s} tasks/s could not be submitted: {late_s:.1f} s late after {seconds} s")
        await caller.looked()
        return caller.took_ms


if __name__ == "__main__":
    took_ms = uvloop.run(pace(int(sys.argv[1]), int(sys.argv[2])))
    print(json.dumps(statistics.quantiles(took_ms, n=100)[98]))
