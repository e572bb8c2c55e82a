"""Managers on both brokers, with a SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.fake_store import FakeStore
from tests.integration.manager.town import Town

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.rabbitmq import RabbitBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
def routed_store() -> FakeStore:
    return FakeStore()


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def town(request: pytest.FixtureRequest, routed_store: FakeStore) -> AsyncIterator[Town]:
    """For what depends on the broker."""
    hub = MemoryHub()
    url = "" if request.param == "memory" else request.getfixturevalue("rabbit_url")
    async with Town(lambda: RabbitBroker(url) if url else MemoryBroker(hub), routed_store) as town:
        yield town


@pytest.fixture
async def memory_town(routed_store: FakeStore) -> AsyncIterator[Town]:
    """For what no broker changes."""
    hub = MemoryHub()
    async with Town(lambda: MemoryBroker(hub), routed_store) as town:
        yield town
