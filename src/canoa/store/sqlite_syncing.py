"""Waits for the disk behind commits that did not: they outlive this program at once, and a power cut from then on.

SQLite's log alone holds what was committed and is not in the file yet, and SQLite syncs it before it overwrites it. So
syncing the log after such a commit is all that `PRAGMA synchronous=FULL` does within it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import StoreUnreachable
from canoa.store.own_thread import OwnThread
from canoa.store.telling import tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    OnSynced: TypeAlias = Callable[[StoreUnreachable | None], None]


WAIT_S: Final = 0.02
"""How long whoever is in no hurry waits for company. A sync beside a lone call makes it slower by a tenth; longer lets
the broker keep more that was dealt with."""

_to_disk = getattr(os, "fdatasync", os.fsync)  # not everywhere is there the one that leaves times alone


class Syncer:
    """Of the file at `path`, as long as a connection to it is open. Belongs to the event loop."""

    def __init__(self, path: Path) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._file: int | None = None
        self._thread = OwnThread("canoa-store-sync")
        self._loop = asyncio.get_running_loop()
        self._syncing: list[OnSynced] = []
        self._waiting: list[OnSynced] = []
        self._is_hurried = False  # somebody who waits is
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """All that it was told of is on disk."""
        return not self._syncing and not self._waiting

    def start(self, on_synced: OnSynced, *, is_hurried: bool) -> None:
        """It hears, on the event loop and in the order of the calls, that all that was committed before is on disk, or
        why not. Whatever comes during one sync waits for the next, together."""
        self._waiting.append(on_synced)
        self._is_hurried = self._is_hurried or is_hurried
        self._schedule()

    async def aclose(self) -> None:
        """After all that it was told of."""
        self._is_hurried = True
        self._schedule()
        while not self.is_idle:
            await self._thread.run(_nothing)
        self._thread.end()
        if self._file is not None:
            os.close(self._file)

    def _schedule(self) -> None:
        if self._syncing or not self._waiting:
            return
        if self._is_hurried:
            self._sync()
        elif self._timer is None:
            self._timer = self._loop.call_later(WAIT_S, self._sync)

    def _sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_hurried = False
        self._syncing, self._waiting = self._waiting, []
        self._thread.start(self._sync_log, self._on_end)

    def _sync_log(self) -> None:
        if self._file is None:  # SQLite locks its other files, never this one: closing it releases none of its locks
            self._file = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        _to_disk(self._file)

    def _on_end(self, _: Any, error: Exception | None) -> None:
        synced, self._syncing = self._syncing, []
        self._schedule()
        why = None if error is None else StoreUnreachable(f"{self._log} cannot be brought to disk: {error}")
        for on_synced in synced:
            tell(on_synced, why)


def _nothing() -> None:
    """Behind what the thread does just now."""
