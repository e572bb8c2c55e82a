"""Real brokers behind links that can be cut: what every test here starts from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.contract.broker.inbox import Inbox
from tests.integration.broker.world import QUICK

from canoa.broker.port import Queue, Settlement
from canoa.broker.rabbitmq import RabbitBroker, RabbitSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.testing import TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory

CLOSE_WITHIN_S = 10.0


class NewBroker(Protocol):
    async def __call__(self, url: str, settings: RabbitSettings = QUICK) -> RabbitBroker: ...


@pytest.fixture
async def new_broker() -> AsyncIterator[NewBroker]:
    """Opens brokers that end with the test."""
    opened: list[RabbitBroker] = []

    async def open_one(url: str, settings: RabbitSettings = QUICK) -> RabbitBroker:
        broker = RabbitBroker(url, settings=settings)
        await broker.open()
        opened.append(broker)
        return broker

    yield open_one
    async with asyncio.timeout(CLOSE_WITHIN_S):
        await asyncio.gather(*(broker.aclose() for broker in opened))


@pytest.fixture
async def proxy(tcp_proxy: ProxyFactory, rabbit_url: str) -> TcpProxy:
    """The way to the test's own virtual host."""
    return await tcp_proxy(rabbit_url)


@pytest.fixture
async def control(new_broker: NewBroker, rabbit_url: str) -> RabbitBroker:
    """Not through the proxy; the queue `q` is there."""
    broker = await new_broker(rabbit_url, RabbitSettings())
    await broker.declare(Queue(name="q"))
    return broker


@pytest.fixture
async def broker(new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str) -> RabbitBroker:
    """Through the proxy, with quick settings."""
    return await new_broker(proxy.via(rabbit_url))


@pytest.fixture
async def inbox(broker: RabbitBroker) -> Inbox:
    """Of a consumer of `q`, through the proxy, that acknowledges all it gets."""
    inbox = Inbox(Settlement.ACK)
    await broker.consume("q", inbox, prefetch=50)
    return inbox
