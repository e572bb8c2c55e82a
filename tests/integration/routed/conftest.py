"""An app on the broker under test, and a manager beside it that is played by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.conftest import app, app_broker, memory_app, raw
from tests.integration.routed.bare_manager import BareManager, managing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa

__all__ = ["app", "app_broker", "manager", "memory_app", "memory_manager", "raw"]


@pytest.fixture
async def manager(app: Canoa) -> AsyncIterator[BareManager]:
    async with managing(app) as manager:
        yield manager


@pytest.fixture
async def memory_manager(memory_app: Canoa) -> AsyncIterator[BareManager]:
    async with managing(memory_app) as manager:
        yield manager
