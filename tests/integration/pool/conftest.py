"""An app on the broker under test, and a second way to that broker, for looking and for mischief."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import opened

from canoa import Canoa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.broker.port import Broker

CLOSE_WITHIN_S = 15.0


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def app_broker(request: pytest.FixtureRequest) -> str:
    """The URL of an empty broker, of both kinds one after the other."""
    if request.param == "memory":
        return "memory://"
    url: str = request.getfixturevalue("rabbit_url")
    return url


@pytest.fixture
async def app(app_broker: str) -> AsyncIterator[Canoa]:
    """Runs on both brokers: for what depends on them."""
    app = Canoa("shop", broker=app_broker)
    yield app
    async with asyncio.timeout(CLOSE_WITHIN_S):
        await app.aclose()


@pytest.fixture
async def memory_app() -> AsyncIterator[Canoa]:
    """Runs on the memory broker: for what no broker changes."""
    app = Canoa("shop", broker="memory://")
    yield app
    async with asyncio.timeout(CLOSE_WITHIN_S):
        await app.aclose()


@pytest.fixture
async def raw(app: Canoa) -> AsyncIterator[Broker]:
    """Another program's access to the broker of `app`."""
    async with opened(app) as broker:
        yield broker


@pytest.fixture
async def memory_raw(memory_app: Canoa) -> AsyncIterator[Broker]:
    """Another program's access to the broker of `memory_app`."""
    async with opened(memory_app) as broker:
        yield broker
