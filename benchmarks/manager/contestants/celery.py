"""Celery's chains and chords, results kept in Redis."""

from __future__ import annotations

import sys
import time
from typing import Any

from celery import Celery, group  # type: ignore[import-untyped]
from celery import chain as chained

from benchmarks import environment
from benchmarks.contestant import unmeasured

PACKAGES = ("celery", "kombu", "amqp", "redis")
QUEUE = "bench.celery.plans"
SETTINGS = (
    "chains and chords: worker -P solo, prefetch 200, task_acks_late, no gossip, mingle, heartbeat, events or remote "
    "control; submits through one producer; results in Redis, told by its publish and subscribe"
)
LEAVES_OUT = dict.fromkeys(("submit", "fill", "gather", "call"), "only chains and chords are compared here")
WORKER = [
    *(sys.executable, "-m", "celery", "-A", "benchmarks.manager.contestants.celery", "worker", "-l", "ERROR"),
    *("-P", "solo", "--prefetch-multiplier", "200", "--without-gossip", "--without-mingle", "--without-heartbeat"),
]
WIDTH = 10

submit = fill = gather = call = unmeasured

app = Celery("bench", broker=environment.broker_url(), backend=environment.redis_url())
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task  # type: ignore[untyped-decorator]
def echo(payload: str) -> str:
    return payload


@app.task  # type: ignore[untyped-decorator]
def join(parts: list[str]) -> str:
    return parts[0]


def chain(count: int, payload: str) -> float:
    return _run(chained(echo.s(payload), echo.s(), echo.s()), count)


def fanout(count: int, payload: str) -> float:
    return _run(chained(echo.s(payload), group(echo.s() for _ in range(WIDTH)), join.s()), count)


def _run(plan: Any, count: int) -> float:
    with app.producer_or_acquire() as producer:
        began = time.perf_counter()
        results = [plan.apply_async(producer=producer) for _ in range(count)]
        for result in results:
            result.get()
        return time.perf_counter() - began
