"""The limits of the store's suite, on the limiter that lives in a process: its programs share the one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canoa.worker.limiter import LocalLimiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.fixture
def store() -> LocalLimiter:
    return LocalLimiter()


@pytest.fixture
def open_store(store: LocalLimiter) -> Callable[[], Awaitable[LocalLimiter]]:
    async def open_one() -> LocalLimiter:
        return store

    return open_one
