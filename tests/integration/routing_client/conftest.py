"""A plant on each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.routing_client.plant import Plant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def plant(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Plant]:
    """Started."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("rabbit_url")
    async with Plant(url, tmp_path) as plant:
        await plant.start()
        yield plant


@pytest.fixture
async def memory_plant(tmp_path: Path) -> AsyncIterator[Plant]:
    """Started, for what no broker changes."""
    async with Plant("memory://", tmp_path) as plant:
        await plant.start()
        yield plant
