"""FastStream over aio-pika, results by its own requests (direct reply-to)."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack

import uvloop
from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from benchmarks import environment
from benchmarks.pool.stamps import tick

PACKAGES = ("faststream", "aio-pika")
QUEUE = "bench.faststream"
SETTINGS = (
    "worker of 1 process with uvloop, prefetch 200, AckPolicy.ACK (after the work), no log per message, "
    "apply_types off; submits 1,000 at a time; results by broker.request, gathered over 10 connections"
)
LEAVES_OUT: dict[str, str] = {}
WORKER = [sys.executable, "-m", "faststream", "run", "benchmarks.pool.contestants.faststream:app"]
AT_A_TIME = 1_000
REQUESTERS = 10


def _broker() -> RabbitBroker:
    channel = Channel(prefetch_count=200)
    return RabbitBroker(environment.broker_url(), default_channel=channel, logger=None, apply_types=False)


broker = _broker()
app = FastStream(broker, logger=None)
queue = RabbitQueue(QUEUE, durable=True)


@broker.subscriber(queue, ack_policy=AckPolicy.ACK)
async def noop(payload: str) -> None:
    tick()


def submit(count: int, payload: str) -> float:
    return uvloop.run(_submit(count, payload))


def fill(count: int, payload: str) -> None:
    submit(count, payload)


async def _submit(count: int, payload: str) -> float:
    async with broker:
        await broker.declare_queue(queue)
        began = time.perf_counter()
        for done in range(0, count, AT_A_TIME):
            batch = range(min(AT_A_TIME, count - done))
            await asyncio.gather(*(broker.publish(payload, queue, persist=True) for _ in batch))
        return time.perf_counter() - began


def gather(count: int, payload: str) -> float:
    return uvloop.run(_gather(count, payload))


async def _gather(count: int, payload: str) -> float:
    async with AsyncExitStack() as stack:
        # Requests of one broker object wait for each other behind a lock.
        brokers = [await stack.enter_async_context(_broker()) for _ in range(REQUESTERS)]
        began = time.perf_counter()
        await asyncio.gather(*(brokers[nth % REQUESTERS].request(payload, queue, timeout=60) for nth in range(count)))
        return time.perf_counter() - began


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_call(count, payload))


async def _call(count: int, payload: str) -> list[float]:
    seconds = []
    async with broker:
        for _ in range(count):
            began = time.perf_counter()
            await broker.request(payload, queue, timeout=60)
            seconds.append(time.perf_counter() - began)
    return seconds
