"""What pool tests say things with: gates for actions, letters to their queues, dead letters, waiting for facts."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families
from tests.contract.broker.inbox import Inbox, letter

from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canoa import Canoa
    from canoa.broker.port import Broker, Delivery, Message
    from canoa.worker.worker import Worker

WITHIN_S = 10.0
POLL_EVERY_S = 0.01


@asynccontextmanager
async def opened(app: Canoa) -> AsyncIterator[Broker]:
    broker = app.new_broker("test")
    await broker.open()
    try:
        yield broker
    finally:
        await broker.aclose()


class Gate:
    """Holds whoever passes, on the loop or in a thread, until it is opened; counts who came."""

    def __init__(self) -> None:
        self.came = 0
        self.ended = 0
        self._open = threading.Event()

    async def hold(self) -> None:
        self.came += 1
        try:
            await until(self._open.is_set, within_s=60)
        finally:
            self.ended += 1

    def hold_thread(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self.came += 1
        while not self._open.wait(POLL_EVERY_S):
            if is_over():
                break
        self.ended += 1

    def open(self) -> None:
        self._open.set()

    async def has(self, count: int) -> None:
        await until(lambda: self.came >= count)


async def until(is_so: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Look again and again, for a bounded time."""
    async with asyncio.timeout(within_s):
        while True:
            if is_so():
                return
            await asyncio.sleep(POLL_EVERY_S)


async def send(raw: Broker, action: str, body: bytes = b"{}", **properties: Any) -> None:
    """A task as another program would write it."""
    await raw.publish(letter(topology.action_queue_name(action), body, **properties))


async def taken(raw: Broker, queue: str, count: int) -> list[Delivery]:
    """The next `count` messages, acknowledged; whatever else is there stays."""
    inbox = Inbox()
    consumer = await raw.consume(queue, inbox, prefetch=count)
    deliveries = await inbox.take(count)
    await consumer.cancel()
    for delivery in deliveries:
        delivery.settle()
    return deliveries


async def dead_letters(raw: Broker, count: int) -> list[Message]:
    return [delivery.message for delivery in await taken(raw, topology.DEAD, count)]


async def dead_letter(raw: Broker) -> Message:
    (letter,) = await dead_letters(raw, 1)
    return letter


def sample(worker: Worker, name: str, **labels: str) -> float:
    """One value from what the worker tells Prometheus."""
    for family in text_string_to_metric_families(worker.metrics().decode()):
        for each in family.samples:
            if each.name == name and each.labels == labels:
                return float(each.value)
    raise AssertionError(f"no {name} with {labels}")
