"""Waits for the disk behind commits that did not: they outlive this program at once, and a power cut from then on.

SQLite's log alone holds what was committed and is not in the file yet, and SQLite syncs it before it overwrites it. So
syncing the log after such a commit is what `PRAGMA synchronous=FULL` does within it. Where that fails, the system may
take what it could not write for written: from then on only the whole log in the file, and that on disk, is believed.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import StoreUnreachable
from canoa.logs import get_logger
from canoa.store.own_thread import OwnThread
from canoa.store.telling import tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    OnSynced: TypeAlias = Callable[[StoreUnreachable | None], None]
    Mend: TypeAlias = Callable[[Callable[[Exception | None], None]], None]

log = get_logger(__name__)

WAIT_S: Final = 0.1
MANY: Final = 64
"""How long whoever is in no hurry waits for company, if not so many are there before. While a log is synced, commits to
it wait: with 20 ms calls one after the other took 7 to 10 % longer. Longer lets the broker keep more that was dealt
with, and bring more of it again should this program be killed."""

MEND_EVERY_S: Final = 1.0
MEND_TRIES: Final = 5
"""Then those who wait are told that it cannot be; the next ones wait for a mend first."""

_to_disk = getattr(os, "fdatasync", os.fsync)  # not everywhere is there the one that leaves times alone


class Syncer:
    """Of the file at `path`, as long as a connection to it is open. `mend` writes the whole log into the file, and says
    whether that is on disk. Belongs to the event loop."""

    def __init__(self, path: Path, mend: Mend) -> None:
        self._log = Path(f"{os.path.realpath(path)}-wal")  # where SQLite has it: beside the file, not a link to it
        self._mend = mend
        self._file: int | None = None
        self._thread = OwnThread("canoa-store-sync")
        self._loop = asyncio.get_running_loop()
        self._syncing: list[OnSynced] = []
        self._waiting: list[OnSynced] = []
        self._is_hurried = False  # somebody who waits is
        self._timer: asyncio.TimerHandle | None = None
        self._is_broken = False  # the last sync failed, and nothing was mended since
        self._tries = 0
        self._is_closing = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_needed(self) -> bool:
        """Whether also what was synced with its commit must wait: for what came before it, or for a mend."""
        return self._is_broken or not self._is_idle.is_set()

    def start(self, on_synced: OnSynced, *, is_hurried: bool) -> None:
        """It hears, on the event loop and in the order of the calls, that all that was committed before is on disk, or
        why not. Whatever comes during one sync waits for the next, together."""
        self._waiting.append(on_synced)
        self._is_idle.clear()
        self._is_hurried = self._is_hurried or is_hurried
        self._schedule()

    async def aclose(self) -> None:
        """After all that it was told of."""
        self._is_closing = self._is_hurried = True
        self._schedule()
        await self._is_idle.wait()
        self._thread.end()
        if self._file is not None:
            os.close(self._file)

    def _schedule(self) -> None:
        if self._syncing or not self._waiting:
            return
        if self._is_hurried or len(self._waiting) >= MANY:
            self._sync()
        elif self._timer is None:
            self._timer = self._loop.call_later(WAIT_S, self._sync)

    def _sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_hurried = False
        self._syncing, self._waiting = self._waiting, []
        if self._is_broken:
            self._try_to_mend()
        else:
            self._thread.start(self._sync_log, self._on_synced)

    def _sync_log(self) -> None:
        if self._file is None:  # SQLite locks its other files, never this one: closing it releases none of its locks
            self._file = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        _to_disk(self._file)

    def _on_synced(self, _: Any, error: Exception | None) -> None:
        if error is None:
            self._tell(None)
            return
        log.error("store_not_synced", file=str(self._log), reason=str(error))
        self._is_broken = True
        self._try_to_mend()

    # --- After a failure ------------------------------------------------------------------------------------

    def _try_to_mend(self) -> None:
        self._tries += 1
        try:
            self._mend(self._on_mended)
        except Exception as exc:
            self._on_mended(exc)

    def _on_mended(self, error: Exception | None) -> None:
        if error is None:
            self._is_broken = False
            self._tell(None)
        elif self._tries < MEND_TRIES and not self._is_closing:
            self._loop.call_later(MEND_EVERY_S, self._try_to_mend)
        else:
            self._tell(StoreUnreachable(f"{self._log} cannot be brought to disk: {error}"))

    def _tell(self, error: StoreUnreachable | None) -> None:
        self._tries = 0
        synced, self._syncing = self._syncing, []
        self._schedule()
        if not self._syncing and not self._waiting:
            self._is_idle.set()
        for on_synced in synced:
            tell(on_synced, error)
