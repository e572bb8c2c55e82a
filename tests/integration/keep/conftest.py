"""An app with a recorder beside its worker, on both brokers, with a SQLite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def keeping(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Keeping]:
    """For what depends on the broker."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("rabbit_url")
    async with Keeping(url, tmp_path) as keeping:
        yield keeping


@pytest.fixture
async def memory_keeping(tmp_path: Path) -> AsyncIterator[Keeping]:
    """For what no broker changes."""
    async with Keeping("memory://", tmp_path) as keeping:
        yield keeping
