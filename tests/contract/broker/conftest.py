"""One suite for the broker port: every test here runs on the memory broker and on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import pytest

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.rabbitmq import RabbitBroker, RabbitSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canoa.broker.port import Broker

CLOSE_WITHIN_S = 10.0


class NewBroker(Protocol):
    """Opens one more broker object on the test's own, initially empty, broker. `window` bounds unconfirmed messages."""

    async def __call__(self, *, window: int = 2000) -> Broker: ...


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def make_broker(request: pytest.FixtureRequest) -> Callable[[int], Broker]:
    if request.param == "memory":
        hub = MemoryHub()
        return lambda window: MemoryBroker(hub)
    url: str = request.getfixturevalue("rabbit_url")
    return lambda window: RabbitBroker(url, settings=RabbitSettings(window=window))


@pytest.fixture
async def new_broker(make_broker: Callable[[int], Broker]) -> AsyncIterator[NewBroker]:
    opened: list[Broker] = []

    async def open_one(*, window: int = 2000) -> Broker:
        broker = make_broker(window)
        await broker.open()
        opened.append(broker)
        return broker

    yield open_one
    async with asyncio.timeout(CLOSE_WITHIN_S):
        for broker in opened:
            await broker.aclose()


@pytest.fixture
async def broker(new_broker: NewBroker) -> Broker:
    return await new_broker()
