"""An API over a desk on paper."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.integration.api.paper_desk import PaperDesk
from tests.integration.api.world import in_process, listening

from canoa import Canoa
from canoa.recorder.token_desk import TokenDesk
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx


@pytest.fixture
def app() -> Canoa:
    return Canoa("shop", broker="memory://", max_payload_bytes=100_000)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once, copied for each test."""
    path = tmp_path_factory.mktemp("store") / "canoa.db"

    async def make() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.aclose()

    asyncio.run(make())
    return path


@pytest.fixture
async def token_store(empty_store: Path, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Where the tokens are; a test may close it, and so it is away, and open it again."""
    shutil.copy(empty_store, tmp_path / "canoa.db")
    store = SqliteStore(tmp_path / "canoa.db")
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
async def desk(token_store: SqliteStore) -> PaperDesk:
    return PaperDesk(TokenDesk(token_store))


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
