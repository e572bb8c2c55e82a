"""Canoa: the pool, results by `reply`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import uvloop

from benchmarks import environment
from benchmarks.pool.stamps import tick
from canoa import Canoa
from canoa.broker import topology

PACKAGES = ("canoa",)
QUEUE = topology.action_queue_name("bench.noop")
SETTINGS = 'worker --concurrency 100; submit_many and result="none" where no result is wanted, else map and call'
LEAVES_OUT: dict[str, str] = {}
_COMMAND = str(Path(sys.executable).with_name("canoa"))
_APP = "benchmarks.pool.contestants.canoa:app"
WORKER = [_COMMAND, "worker", _APP, "--broker", environment.broker_url(), "--concurrency", "100"]

app = Canoa("bench", broker=environment.broker_url())


@app.action()
async def noop(payload: str) -> None:
    tick()


def submit(count: int, payload: str) -> float:
    # Submitting is mandatory, and only workers and this command declare an action's queue.
    subprocess.run([_COMMAND, "actions", "declare", _APP, "--broker", environment.broker_url()], check=True)
    return uvloop.run(_submit(count, payload))


def fill(count: int, payload: str) -> None:
    submit(count, payload)


async def _submit(count: int, payload: str) -> float:
    async with app:
        began = time.perf_counter()
        await noop.using(result="none").submit_many([noop.args(payload) for _ in range(count)])
        return time.perf_counter() - began


def gather(count: int, payload: str) -> float:
    return uvloop.run(_gather(count, payload))


async def _gather(count: int, payload: str) -> float:
    async with app:
        began = time.perf_counter()
        async for _ in noop.map([noop.args(payload) for _ in range(count)], in_flight=count):
            pass
        return time.perf_counter() - began


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_call(count, payload))


async def _call(count: int, payload: str) -> list[float]:
    seconds = []
    async with app:
        for _ in range(count):
            began = time.perf_counter()
            await noop.call(payload)
            seconds.append(time.perf_counter() - began)
    return seconds
