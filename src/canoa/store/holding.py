"""Somebody has it alone, and what comes meanwhile waits in its order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from canoa.store.telling import tell

if TYPE_CHECKING:
    from collections.abc import Callable


class Holding:
    """Belongs to the event loop. Several may hold at once; the last who lets go lets in what came."""

    def __init__(self) -> None:
        self._holders = 0
        self._held: deque[Callable[[], None]] = deque()
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def is_held(self) -> bool:
        return self._holders > 0

    async def wait_free(self) -> None:
        """Nobody holds it when this returns, and as long as the caller awaits nothing else."""
        while self._holders:
            await self._is_free.wait()

    def hold(self) -> None:
        self._holders += 1
        self._is_free.clear()

    def let_go(self) -> None:
        """What is let in may hold again: then the rest stays."""
        self._holders -= 1
        while self._held and not self._holders:
            tell(self._held.popleft())
        if not self._holders:
            self._is_free.set()

    def later(self, call: Callable[[], None]) -> None:
        """Once nobody holds it, behind what came before."""
        self._held.append(call)

    def first(self, call: Callable[[], None]) -> None:
        """Likewise, and before all of that."""
        self._held.appendleft(call)
