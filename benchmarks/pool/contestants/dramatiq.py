"""Dramatiq over pika, results over Redis."""

from __future__ import annotations

import sys
import time

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks import environment
from benchmarks.pool.stamps import tick

PACKAGES = ("dramatiq", "pika")
QUEUE = "bench.dramatiq"
SETTINGS = (
    "worker of 1 process and 8 threads, prefetch 1,000, default middleware; confirm_delivery where confirmed; "
    "results over Redis"
)
LEAVES_OUT: dict[str, str] = {}
WORKER = [
    *("env", "dramatiq_queue_prefetch=1000"),
    *(sys.executable, "-m", "dramatiq", "benchmarks.pool.contestants.dramatiq", "--processes", "1", "--threads", "8"),
]

broker = RabbitmqBroker(url=environment.broker_url())
if environment.wants_results():
    results = Results(backend=RedisBackend(url=environment.redis_url()), store_results=True)  # type: ignore[no-untyped-call]
    broker.add_middleware(results)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=QUEUE)
def noop(payload: str) -> None:
    tick()


def submit(count: int, payload: str) -> float:
    broker.confirm_delivery = True
    return _publish(count, payload)


def fill(count: int, payload: str) -> None:
    _publish(count, payload)


def _publish(count: int, payload: str) -> float:
    broker.declare_queue(QUEUE, ensure=True)
    began = time.perf_counter()
    for _ in range(count):
        noop.send(payload)
    elapsed = time.perf_counter() - began
    broker.close()  # flushes what was not confirmed
    return elapsed


def gather(count: int, payload: str) -> float:
    broker.declare_queue(QUEUE, ensure=True)
    began = time.perf_counter()
    messages = [noop.send(payload) for _ in range(count)]
    for message in messages:
        message.get_result(block=True)
    return time.perf_counter() - began


def call(count: int, payload: str) -> list[float]:
    broker.declare_queue(QUEUE, ensure=True)
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        noop.send(payload).get_result(block=True)
        seconds.append(time.perf_counter() - began)
    return seconds
