"""Pending calls of an event loop, one per key, all of which can be taken back at once.

Only the timers: what they are for is the owner's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable


class Alarms:
    """Setting a key's alarm replaces the one before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: dict[Hashable, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def due(self, key: Hashable) -> float | None:
        """When it will ring, on the loop's clock, or None."""
        handle = self._pending.get(key)
        return None if handle is None else handle.when()

    def set(self, key: Hashable, when: float, action: Callable[[], None]) -> None:
        self.drop(key)
        self._pending[key] = self._loop.call_at(when, self._ring, key, action)

    def drop(self, key: Hashable) -> None:
        handle = self._pending.pop(key, None)
        if handle is not None:
            handle.cancel()

    def clear(self) -> None:
        for key in list(self._pending):
            self.drop(key)

    def _ring(self, key: Hashable, action: Callable[[], None]) -> None:
        del self._pending[key]
        action()
