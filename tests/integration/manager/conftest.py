"""Managers on both brokers: alone with their nodes (a town), and with tasks on each store they can share (a site)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.site import Site
from tests.integration.manager.town import Town

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.rabbitmq import RabbitBroker
from canoa.store.opening import new_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.store.routed_port import FullStore

_RABBIT = pytest.mark.rabbitmq
_BOTH = [pytest.mark.rabbitmq, pytest.mark.postgres]


@pytest.fixture(
    params=[
        "memory-sqlite",
        pytest.param("rabbitmq-sqlite", marks=_RABBIT),
        pytest.param("rabbitmq-postgresql", marks=_BOTH),
    ]
)
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """For what depends on broker and store."""
    broker, store = request.param.split("-")
    broker_url = "memory://" if broker == "memory" else request.getfixturevalue("rabbit_url")
    store_url = f"sqlite:///{tmp_path}/canoa.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    async with Site(broker_url, store_url) as site:
        yield site


@pytest.fixture
async def memory_site(tmp_path: Path) -> AsyncIterator[Site]:
    """For what neither changes."""
    async with Site("memory://", f"sqlite:///{tmp_path}/canoa.db") as site:
        yield site


@pytest.fixture
async def shared_site(rabbit_url: str, postgres_url: str) -> AsyncIterator[Site]:
    """For several managers."""
    async with Site(rabbit_url, postgres_url) as site:
        yield site


@pytest.fixture
async def routed_store(tmp_path: Path) -> AsyncIterator[FullStore]:
    store = new_store(f"sqlite:///{tmp_path / 'canoa.db'}")
    await store.open()
    yield store
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
