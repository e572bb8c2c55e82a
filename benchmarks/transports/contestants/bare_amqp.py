"""Requests and answers through RabbitMQ, by Canoa's own AMQP engine: each confirmed, none on disk."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from benchmarks import environment
from benchmarks.contestant import unmeasured
from canoa import Canoa
from canoa.broker.port import Message, Publication, Queue

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery, PublishOutcome

PACKAGES = ("canoa",)
QUEUE = "bench.bare.requests"
REPLIES = "bench.bare.replies"
SETTINGS = "the AMQP engine of Canoa without anything around it; prefetch 1,000; transient messages, confirmed"
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only answers are compared here")
WORKER = [sys.executable, "-m", "benchmarks.transports.contestants.bare_amqp"]
PREFETCH = 1000

_ids = map(str, itertools.count(1))

submit = fill = unmeasured


def gather(count: int, payload: str) -> float:
    return uvloop.run(_exchanges(count, payload, times=1))[0]


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_exchanges(1, payload, times=count))


async def _exchanges(count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` requests at once to the last answer, each time."""
    broker = _broker("asking")
    await broker.open()
    answered = asyncio.Semaphore(0)

    def on_answer(delivery: Delivery) -> None:
        delivery.settle()
        answered.release()

    await broker.consume(REPLIES, on_answer, prefetch=PREFETCH, topology=[Queue(name=REPLIES)])
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        for _ in range(count):
            broker.post(_to(QUEUE, payload.encode()), _on_outcome)
        for _ in range(count):
            await answered.acquire()
        seconds.append(time.perf_counter() - began)
    await broker.aclose()
    return seconds


async def answer() -> None:
    """Until killed."""
    broker = _broker("answering")
    await broker.open()

    def on_request(delivery: Delivery) -> None:
        broker.post(_to(REPLIES, delivery.message.body), partial(_settle, delivery))

    consumer = await broker.consume(
        QUEUE, on_request, prefetch=PREFETCH, topology=[Queue(name=QUEUE), Queue(name=REPLIES)]
    )
    await consumer.wait_ended()


def _broker(purpose: str) -> Broker:
    return Canoa("bare", broker=environment.broker_url()).new_broker(purpose)


def _to(queue: str, body: bytes) -> Publication:
    return Publication(message=Message(body=body, persistent=False, message_id=next(_ids)), key=queue)


def _settle(delivery: Delivery, outcome: PublishOutcome) -> None:
    _on_outcome(outcome)
    delivery.settle()


def _on_outcome(outcome: PublishOutcome) -> None:
    if outcome is not None:
        raise SystemExit(f"the broker did not take it: {outcome}")


if __name__ == "__main__":
    uvloop.run(answer())
