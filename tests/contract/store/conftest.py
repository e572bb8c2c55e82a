"""One suite for the store port: every test here runs on a SQLite file and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.contract.store.empty_file import put_empty_store
from tests.sql import SQLITE, first_value

from canoa.store.opening import new_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.store.routed_port import FullStore

CLOSE_WITHIN_S = 10.0


class OpenStore(Protocol):
    """Opens one more store object on the test's own, initially empty, store."""

    async def __call__(self) -> FullStore: ...


class RunSql(Protocol):
    """Does what no store object would: the first value of the first row, if there is one."""

    async def __call__(self, statement: str) -> object: ...


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"{SQLITE}{tmp_path / 'canoa.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def open_store(store_url: str) -> AsyncIterator[OpenStore]:
    opened: list[FullStore] = []
    path = Path(store_url.removeprefix(SQLITE)) if store_url.startswith(SQLITE) else None

    async def open_one() -> FullStore:
        if path is not None and not path.exists():
            put_empty_store(path)
        store = new_store(store_url)
        opened.append(store)
        await store.open()
        return store

    yield open_one
    async with asyncio.timeout(CLOSE_WITHIN_S):
        for store in opened:
            await store.aclose()


@pytest.fixture
async def store(open_store: OpenStore) -> FullStore:
    return await open_store()


@pytest.fixture
def run_sql(store_url: str) -> RunSql:
    return partial(first_value, store_url)
