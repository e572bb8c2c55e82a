"""What contract tests say things with: letters to send, an inbox to wait at, depths to wait for."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from canoa.broker.port import Broker, Delivery, Depth, Message, Publication, Settlement
from canoa.errors import Unroutable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

WITHIN_S = 10.0
POLL_EVERY_S = 0.01

_ids = itertools.count(1)


def letter(
    key: str, body: bytes = b"", *, exchange: str = "", mandatory: bool = True, **properties: Any
) -> Publication:
    """To the queue named `key`, or by that key to an exchange. `properties` are fields of `Message`."""
    message = Message(**{"body": body, "message_id": f"letter-{next(_ids)}", **properties})
    return Publication(message=message, key=key, exchange=exchange, mandatory=mandatory)


def letters(key: str, *bodies: bytes, **properties: Any) -> list[Publication]:
    return [letter(key, body, **properties) for body in bodies]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Inbox:
    """An `on_delivery` that keeps what comes, and settles it at once if told how."""

    def __init__(self, settle: Settlement | None = None) -> None:
        self.deliveries: list[Delivery] = []
        self._settle = settle
        self._came = asyncio.Event()
        self._taken = 0

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if self._settle is not None:
            delivery.settle(self._settle)
        self._came.set()

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.message.body for delivery in self.deliveries]

    async def take(self, count: int) -> list[Delivery]:
        """The next `count` deliveries, in the order they came."""
        wanted = self._taken + count
        try:
            async with asyncio.timeout(WITHIN_S):
                while len(self.deliveries) < wanted:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"{wanted} deliveries expected, but only {self.bodies} came") from None
        taken = self.deliveries[self._taken : wanted]
        self._taken = wanted
        return taken

    async def take_one(self) -> Delivery:
        (delivery,) = await self.take(1)
        return delivery

    async def take_bodies(self, count: int) -> list[bytes]:
        return [delivery.message.body for delivery in await self.take(count)]


async def received(broker: Broker, queue: str, count: int) -> list[Delivery]:
    """Consume `count` messages, acknowledged, and stop consuming."""
    inbox = Inbox(Settlement.ACK)
    consumer = await broker.consume(queue, inbox, prefetch=count)
    deliveries = await inbox.take(count)
    await consumer.cancel()
    return deliveries


async def received_bodies(broker: Broker, queue: str, count: int) -> list[bytes]:
    return [delivery.message.body for delivery in await received(broker, queue, count)]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for a bounded time."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await is_so():
                return
            await asyncio.sleep(POLL_EVERY_S)


async def until_holding(broker: Broker, queue: str, messages: int) -> Depth:
    """Note that looking at a queue keeps it from expiring."""
    depth = await broker.depth(queue)

    async def is_so() -> bool:
        nonlocal depth
        depth = await broker.depth(queue)
        return depth.messages == messages

    try:
        await until(is_so)
    except TimeoutError:
        raise AssertionError(f"queue {queue!r} stays at {depth}") from None
    return depth


async def until_gone(broker: Broker, queue: str) -> None:
    """Publish to it until nobody is there: unlike looking at a queue, this does not count as using it."""

    async def is_so() -> bool:
        return not await is_there(broker, queue)

    await until(is_so)


async def is_there(broker: Broker, queue: str) -> bool:
    try:
        await broker.publish(letter(queue))
    except Unroutable:
        return False
    return True
