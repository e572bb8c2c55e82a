"""Celery over py-amqp, results over its rpc backend."""

from __future__ import annotations

import sys
import time

from celery import Celery  # type: ignore[import-untyped]

from benchmarks import environment
from benchmarks.pool.stamps import tick

PACKAGES = ("celery", "kombu", "amqp")
QUEUE = "bench.celery"
SETTINGS = (
    "worker -P solo, prefetch 200, task_acks_late, ignore_result, no gossip, mingle, heartbeat, events or remote "
    "control; submits through one producer, confirm_publish where confirmed; results over rpc://"
)
LEAVES_OUT: dict[str, str] = {}
WORKER = [
    *(sys.executable, "-m", "celery", "-A", "benchmarks.pool.contestants.celery", "worker", "-l", "ERROR"),
    *("-P", "solo", "--prefetch-multiplier", "200", "--without-gossip", "--without-mingle", "--without-heartbeat"),
]

app = Celery("bench", broker=environment.broker_url(), backend="rpc://" if environment.wants_results() else None)
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(ignore_result=not environment.wants_results())  # type: ignore[untyped-decorator]
def noop(payload: str) -> None:
    tick()


def submit(count: int, payload: str) -> float:
    app.conf.broker_transport_options = {"confirm_publish": True}
    return _publish(count, payload)


def fill(count: int, payload: str) -> None:
    _publish(count, payload)


def _publish(count: int, payload: str) -> float:
    with app.producer_or_acquire() as producer:
        began = time.perf_counter()
        for _ in range(count):
            noop.apply_async((payload,), producer=producer)
        elapsed = time.perf_counter() - began
    app.close()  # flushes what was not confirmed
    return elapsed


def gather(count: int, payload: str) -> float:
    with app.producer_or_acquire() as producer:
        began = time.perf_counter()
        results = [noop.apply_async((payload,), producer=producer) for _ in range(count)]
        for result in results:
            result.get()
        return time.perf_counter() - began


def call(count: int, payload: str) -> list[float]:
    seconds = []
    with app.producer_or_acquire() as producer:
        for _ in range(count):
            began = time.perf_counter()
            noop.apply_async((payload,), producer=producer).get()
            seconds.append(time.perf_counter() - began)
    return seconds
