"""An API over a desk on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.api.paper_desk import PaperDesk
from tests.integration.api.world import in_process, listening

from canoa import Canoa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx


@pytest.fixture
def app() -> Canoa:
    return Canoa("shop", broker="memory://", max_payload_bytes=100_000)


@pytest.fixture
async def desk() -> PaperDesk:
    return PaperDesk()


@pytest.fixture
async def api(app: Canoa, desk: PaperDesk) -> AsyncIterator[httpx.AsyncClient]:
    """In process."""
    async with in_process(app, desk) as client:
        yield client


@pytest.fixture
async def server(app: Canoa, desk: PaperDesk) -> AsyncIterator[httpx.AsyncClient]:
    """On a port."""
    async with listening(app, desk) as client:
        yield client
