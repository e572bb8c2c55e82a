"""A site on each broker with each store that managers can share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.dispatch.site import Site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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
