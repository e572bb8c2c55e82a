"""Taskiq over aio-pika, results over Redis."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvloop
from taskiq_aio_pika import AioPikaBroker, Queue, QueueType
from taskiq_redis import RedisAsyncResultBackend

from benchmarks import environment
from benchmarks.pool.stamps import tick

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PACKAGES = ("taskiq", "taskiq-aio-pika", "aio-pika", "taskiq-redis")
QUEUE = "bench.taskiq"
SETTINGS = (
    "worker of 1 process with uvloop, max-async-tasks 100, max-prefetch 100, qos 200, ack when_executed, no-parse, "
    "classic queue; submits 500 at a time; results over Redis"
)
LEAVES_OUT: dict[str, str] = {}
WORKER = [
    *(sys.executable, "-m", "taskiq", "worker", "benchmarks.pool.contestants.taskiq:broker", "--workers", "1"),
    *("--max-async-tasks", "100", "--max-prefetch", "100", "--ack-type", "when_executed", "--no-parse"),
    *("--log-level", "WARNING"),
]
AT_A_TIME = 500

broker = AioPikaBroker(environment.broker_url(), qos=200, task_queues=[Queue(name=QUEUE, type=QueueType.CLASSIC)])
if environment.wants_results():
    broker = broker.with_result_backend(RedisAsyncResultBackend(environment.redis_url()))


@broker.task
async def noop(payload: str) -> None:
    tick()


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    await broker.startup()
    yield
    await broker.shutdown()


def submit(count: int, payload: str) -> float:
    return uvloop.run(_submit(count, payload))


def fill(count: int, payload: str) -> None:
    submit(count, payload)


async def _submit(count: int, payload: str) -> float:
    async with running():
        began = time.perf_counter()
        for done in range(0, count, AT_A_TIME):
            await asyncio.gather(*(noop.kiq(payload) for _ in range(min(AT_A_TIME, count - done))))
        return time.perf_counter() - began


def gather(count: int, payload: str) -> float:
    return uvloop.run(_gather(count, payload))


async def _gather(count: int, payload: str) -> float:
    async with running():
        began = time.perf_counter()
        tasks = []
        for done in range(0, count, AT_A_TIME):
            tasks += await asyncio.gather(*(noop.kiq(payload) for _ in range(min(AT_A_TIME, count - done))))
        for task in tasks:
            await task.wait_result(check_interval=0.002)
        return time.perf_counter() - began


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_call(count, payload))


async def _call(count: int, payload: str) -> list[float]:
    seconds = []
    async with running():
        for _ in range(count):
            began = time.perf_counter()
            task = await noop.kiq(payload)
            await task.wait_result(check_interval=0.001)
            seconds.append(time.perf_counter() - began)
    return seconds
