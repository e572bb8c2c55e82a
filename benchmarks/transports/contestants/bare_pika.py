"""Requests and answers through RabbitMQ by pika, the library that most Python programs use: as `bare_amqp`, which uses
Canoa's own engine."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import pika
import uvloop
from pika.adapters.asyncio_connection import AsyncioConnection

from benchmarks import environment
from benchmarks.contestant import unmeasured

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("pika",)
QUEUE = "bench.pika.requests"
REPLIES = "bench.pika.replies"
SETTINGS = "its asyncio adapter; prefetch 1,000; transient messages, confirmed"
LEAVES_OUT = dict.fromkeys(("submit", "fill"), "only answers are compared here")
WORKER = [sys.executable, "-m", "benchmarks.transports.contestants.bare_pika"]
PREFETCH = 1000
TRANSIENT = pika.BasicProperties(delivery_mode=1)

submit = fill = unmeasured


def gather(count: int, payload: str) -> float:
    return uvloop.run(_exchanges(count, payload, times=1))[0]


def call(count: int, payload: str) -> list[float]:
    return uvloop.run(_exchanges(1, payload, times=count))


async def _exchanges(count: int, payload: str, *, times: int) -> list[float]:
    """Seconds from sending `count` requests at once to the last answer, each time."""
    channel = await _channel(REPLIES, lambda _: None)
    answered = asyncio.Semaphore(0)

    def on_answer(_: Any, method: Any, __: Any, ___: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        answered.release()

    channel.basic_consume(REPLIES, on_answer)
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        for _ in range(count):
            channel.basic_publish("", QUEUE, payload.encode(), TRANSIENT)
        for _ in range(count):
            await answered.acquire()
        seconds.append(time.perf_counter() - began)
    return seconds


async def answer() -> None:
    """Until killed. Acknowledged when the broker has the answer."""
    requests: dict[int, int] = {}  # the request's tag by the answer's number

    def on_confirm(frame: Any) -> None:
        first = frame.method.delivery_tag
        for number in [each for each in requests if each <= first] if frame.method.multiple else [first]:
            channel.basic_ack(requests.pop(number))

    def on_request(_: Any, method: Any, __: Any, body: bytes) -> None:
        requests[method.delivery_tag] = method.delivery_tag  # one answer per request: both are counted from one
        channel.basic_publish("", REPLIES, body, TRANSIENT)

    channel = await _channel(QUEUE, on_confirm)
    channel.basic_consume(QUEUE, on_request)
    await asyncio.Event().wait()


async def _channel(queue: str, on_confirm: Callable[[Any], None]) -> Any:
    """With the queue declared, and confirms on."""
    ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_channel(channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.confirm_delivery(on_confirm)
        channel.queue_declare(REPLIES, durable=True)
        channel.queue_declare(queue, durable=True, callback=lambda _: ready.set_result(channel))

    parameters = pika.URLParameters(environment.broker_url())
    AsyncioConnection(parameters, on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel))
    return await ready


if __name__ == "__main__":
    uvloop.run(answer())
