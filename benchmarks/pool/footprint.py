"""What our own worker weighs: importing it, keeping it idle, and whether it grows. Read from the operating system."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import bare, processes
from benchmarks.polling import polling, wait_for_consumer
from benchmarks.pool import contestants
from benchmarks.usage import TICKS_PER_S, usage

if TYPE_CHECKING:
    from benchmarks.pool.sessions import Stage

IMPORTS = 10
IDLE_S = 20.0
CALM_S = 3.0
"""After the consumer is there: the worker's own start is not idleness."""

ACTIONS = 1_000_000
PORTIONS = 20
WARM_UP_PORTIONS = 2
"""Caches, pools and the allocator's arenas have reached their size by then; what comes after is growth."""

LEAST_GROWTH_MIB = 0.1
"""Growth below this, or shrinking, is written as this, so that a ratio exists."""


def import_time() -> dict[str, float]:
    """Rounds interleaved; the bare interpreter's start is taken off."""
    bare_starts, imports = [], []
    for _ in range(IMPORTS):
        bare_starts.append(_seconds("pass"))
        imports.append(_seconds("import canoa"))
    return {"import_time": (statistics.median(imports) - statistics.median(bare_starts)) * 1000}


def _seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def idle(stage: Stage) -> dict[str, float]:
    link = bare.Link(stage.broker_url)
    with processes.workers(stage.description.worker, 1, env=stage.env) as workers:
        wait_for_consumer(link, stage.description.queue, workers)
        time.sleep(CALM_S)
        before, began = usage(workers[0].group), time.monotonic()
        time.sleep(IDLE_S)
        after, elapsed_s = usage(workers[0].group), time.monotonic() - began
        # The kernel counts in ticks (0.05 % of 20 s): less than one is written as one, so that a ratio exists.
        used_s = max(after.cpu_s - before.cpu_s, 1 / TICKS_PER_S)
        figures = {"idle_rss": after.rss_mib, "idle_cpu": 100 * used_s / elapsed_s}
    link.delete(stage.description.queue)
    link.close()
    return figures


def growth(stage: Stage, *, actions: int = ACTIONS) -> dict[str, float]:
    """The highest resident size after the warm-up, minus that right after it, in one worker that runs `actions`."""
    link = bare.Link(stage.broker_url)
    queue = stage.description.queue
    sizes: list[float] = []
    with processes.workers(stage.description.worker, 1, env=stage.env) as workers:
        wait_for_consumer(link, queue, workers)
        for _ in range(PORTIONS):
            processes.ask(contestants.module(stage.name), "submit", actions // PORTIONS, 100, env=stage.env)
            _wait_until_empty(link, queue)
            workers[0].check()
            sizes.append(usage(workers[0].group).rss_mib)
    link.delete(queue)
    link.close()
    return {"memory_1M": max(max(sizes[WARM_UP_PORTIONS:]) - sizes[WARM_UP_PORTIONS - 1], LEAST_GROWTH_MIB)}


def _wait_until_empty(link: bare.Link, queue: str) -> None:
    for _ in polling(60, f"{queue} to be empty"):
        found = link.look(queue)
        if found is not None and not found.messages:
            return
