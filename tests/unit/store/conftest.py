from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.empty_file import put_empty_store
from tests.unit.store.desks import Desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path / "canoa.db")
    put_empty_store(desk.path)
    await desk.store.open()
    yield desk
    await desk.store.aclose()


@pytest.fixture
async def other(desk: Desk) -> AsyncIterator[Desk]:
    """Another program on the same file; `desk` may be left as a kill leaves it."""
    other = Desk(desk.path)
    await other.store.open()
    yield other
    await other.store.aclose()
