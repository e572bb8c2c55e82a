from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.store.desks import Desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path / "canoa.db")
    await desk.store.open()
    yield desk
    await desk.store.aclose()
