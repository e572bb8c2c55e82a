"""Canoa: a worker and a recorder, results by `keep`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import uvloop

from benchmarks import environment
from benchmarks.contestant import unmeasured
from canoa import Canoa
from canoa.broker import topology

PACKAGES = ("canoa",)
QUEUE = topology.action_queue_name("bench.noop")
SETTINGS = 'worker --concurrency 100, one recorder; result="keep" and map'
LEAVES_OUT = dict.fromkeys(("submit", "fill", "call"), "only results are compared here")
_COMMAND = str(Path(sys.executable).with_name("canoa"))
_APP = "benchmarks.keep.contestants.canoa:app"
WORKER = [_COMMAND, "worker", _APP, "--broker", environment.broker_url(), "--concurrency", "100"]

submit = fill = call = unmeasured

app = Canoa("bench", broker=environment.broker_url())


@app.action()
async def noop(payload: str) -> None:
    pass


@app.action()
async def told_at() -> float:
    """When its result left the action, in epoch seconds."""
    return time.time()


def gather(count: int, payload: str) -> float:
    return uvloop.run(_gather(count, payload))


async def _gather(count: int, payload: str) -> float:
    kept = noop.using(result="keep")
    async with app:
        began = time.perf_counter()
        async for _ in kept.map([noop.args(payload) for _ in range(count)], in_flight=count):
            pass
        return time.perf_counter() - began
