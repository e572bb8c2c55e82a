"""A town of managers and nodes, on both brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.town import Town

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.rabbitmq import RabbitBroker
from canoa.store.opening import new_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.store.routed_port import FullStore


@pytest.fixture
async def routed_store(tmp_path: Path) -> AsyncIterator[FullStore]:
    store = new_store(f"sqlite:///{tmp_path / 'canoa.db'}")
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
async def shared_town(rabbit_url: str, postgres_url: str) -> AsyncIterator[Town]:
    """For several managers on many machines."""
    store = new_store(postgres_url)
    await store.open()
    async with Town(lambda: RabbitBroker(rabbit_url), store) as town:
        yield town
    await store.aclose()


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def town(request: pytest.FixtureRequest, routed_store: FullStore) -> AsyncIterator[Town]:
    """For what depends on the broker."""
    hub = MemoryHub()
    url = "" if request.param == "memory" else request.getfixturevalue("rabbit_url")
    async with Town(lambda: RabbitBroker(url) if url else MemoryBroker(hub), routed_store) as town:
        yield town


@pytest.fixture
async def memory_town(routed_store: FullStore) -> AsyncIterator[Town]:
    """For what no broker changes."""
    hub = MemoryHub()
    async with Town(lambda: MemoryBroker(hub), routed_store) as town:
        yield town
