"""Celery over py-amqp, results in its database backend (SQLAlchemy)."""

from __future__ import annotations

import sqlite3
import sys
import time

from celery import Celery  # type: ignore[import-untyped]

from benchmarks import environment
from benchmarks.contestant import unmeasured

PACKAGES = ("celery", "kombu", "amqp", "sqlalchemy", "psycopg2-binary")
QUEUE = "bench.celery"
SETTINGS = (
    "worker -P prefork -c 2, prefetch 200, task_acks_late, no gossip, mingle, heartbeat, events or remote control; "
    "submits through one producer; results over db+ with pooled connections (also in the caller), not pinged, "
    "asked for every 10 ms; SQLite with a write-ahead log"
)
LEAVES_OUT = dict.fromkeys(("submit", "fill", "call"), "only results are compared here")
WORKER = [
    *(sys.executable, "-m", "celery", "-A", "benchmarks.keep.contestants.celery", "worker", "-l", "ERROR"),
    *("-P", "prefork", "-c", "2", "--prefetch-multiplier", "100"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
]
POLL_S = 0.01

submit = fill = call = unmeasured


def _backend(store_url: str) -> str:
    if store_url.startswith("sqlite:///"):  # the file remembers it
        sqlite3.connect(store_url.removeprefix("sqlite:///")).execute("PRAGMA journal_mode=WAL")
    return f"db+{store_url.replace('postgresql://', 'postgresql+psycopg2://')}"


app = Celery("bench", broker=environment.broker_url(), backend=_backend(environment.store_url()))
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    database_engine_options={"pool_pre_ping": False},  # a round trip per question
)


@app.task  # type: ignore[untyped-decorator]
def noop(payload: str) -> None:
    pass


def gather(count: int, payload: str) -> float:
    # Celery pools database connections only in forked processes, as a web server's are; others connect per question.
    app.backend.session_manager._after_fork()
    with app.producer_or_acquire() as producer:
        began = time.perf_counter()
        results = [noop.apply_async((payload,), producer=producer) for _ in range(count)]
        for result in results:
            result.get(interval=POLL_S)
        return time.perf_counter() - began
