"""What waits on purpose (long polls, event streams) ends when the server stops, instead of holding it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stopping:
    """Whether the server stops, for all who wait."""

    def __init__(self) -> None:
        self.is_set = False
        self._scopes: set[asyncio.Timeout] = set()

    def set(self) -> None:
        self.is_set = True
        for scope in self._scopes:
            _end(scope)

    @asynccontextmanager
    async def interrupts(self) -> AsyncIterator[None]:
        """What is awaited inside is cancelled when the server stops; the block then raises `TimeoutError`."""
        async with asyncio.timeout(None) as scope:
            if self.is_set:
                _end(scope)
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)


def _end(scope: asyncio.Timeout) -> None:
    scope.reschedule(0)
