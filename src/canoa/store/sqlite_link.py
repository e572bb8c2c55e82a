"""One connection to a SQLite file, in a thread of its own: so a long read never holds up a write, nor the event loop.

Here are also the file's settings, and what SQLite's errors mean in the port's words.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.store.own_thread import OwnThread
from canoa.store.port import Writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = TypeVar("Result")

BUSY_TIMEOUT_S: Final = 10.0
"""How long a write waits for another program's. Longer rides out bigger groups and slower disks."""

_RETRY_AFTER_S: Final = 0.02
_NO_ROOM_BYTES: Final = 1024 * 1024  # the write-ahead log's index grows by 32 KiB, its log by whole transactions

_SETTINGS: Final = (
    "PRAGMA synchronous=FULL",  # a commit is on disk when it returns, also after a power cut
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-32768",  # KiB; holds the inner pages of the indexes of some million tasks
    "PRAGMA wal_autocheckpoint=4000",  # pages; fewer make every tenth group wait for a checkpoint
    "PRAGMA journal_size_limit=67108864",
)
# Primary codes (https://www.sqlite.org/rescode.html): the low byte of what the driver reports.
_UNUSABLE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FORBIDDEN: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_OF_A_VALUE: Final = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}


class SqliteLink:
    """A thread with a connection to the file. `name` is the thread's. Not open yet."""

    def __init__(self, path: Path, *, name: str) -> None:
        self._path = path
        self._name = name
        self._thread: OwnThread | None = None
        self._connection: sqlite3.Connection | None = None
        self.writes = Writes()  # never repeated: each is alone from its beginning

    async def open(self) -> None:
        self._thread = OwnThread(self._name)
        await self._in_thread(self._connect)

    async def aclose(self) -> None:
        """What was asked before is done first. Closing twice is allowed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closed = thread.run(self._disconnect)
            thread.end()
            await closed

    async def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await self._in_thread(lambda: work(self._opened()))

    async def write(
        self, work: Callable[[sqlite3.Connection], Result], *, after: Callable[[Result], None] | None = None
    ) -> Result:
        """In one transaction, on disk when it returns; alone from the beginning, so what `work` reads stays true.
        `after`: with the result, in the same thread, before anybody else writes; not if it was not committed."""
        result = await self._in_thread(lambda: _transaction(self._opened(), work, after))
        self.writes.done += 1
        return result

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            raise StoreUnreachable(f"the store {self._path} is closed; open it before you use it")
        try:
            return await self._thread.run(work)
        except sqlite3.Error as exc:
            raise translated(exc, self._path) from exc
        except OverflowError as exc:
            raise WrongUse(f"a value that the store {self._path} cannot keep: {exc}") from exc

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:  # its opening failed
            raise StoreUnreachable(
                f"the store {self._path} is not open; open it first, and do not use it after closing"
            )
        return self._connection

    def _connect(self) -> None:
        self._connection = connect(self._path)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect(path: Path) -> sqlite3.Connection:
    """With our settings, in the mode where readers and a writer do not wait for each other."""
    with suppress(OSError):  # SQLite says better what is wrong
        path.touch(mode=0o600)  # a new one is for its owner alone, and so are the files that SQLite makes beside it
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _use_write_ahead_log(connection)
        for setting in _SETTINGS:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    return connection


def translated(exc: sqlite3.Error, path: Path) -> CanoaError:
    """What a caller can do about it."""
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _UNUSABLE:
        return SettingError(f"{path} is no usable SQLite database ({exc}); move it away, or restore a backup of it")
    if "already exists" in str(exc):  # there is no code of its own for it
        return SettingError(f"{path} holds tables of another program ({exc}); give Canoa its own file")
    if code == sqlite3.SQLITE_FULL or (code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN} and _is_full(path)):
        return StoreFull(f"no room left for the store {path}; make some, then it goes on by itself")
    if code in _FORBIDDEN:
        return SettingError(f"the store {path} cannot be opened for writing ({exc}); see to its folder's permissions")
    if code in _OF_A_VALUE:
        return WrongUse(f"a value that the store {path} cannot keep: {exc}")
    return StoreUnreachable(f"the store {path}: {exc}")


def _transaction(
    connection: sqlite3.Connection,
    work: Callable[[sqlite3.Connection], Result],
    after: Callable[[Result], None] | None,
) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled back already
            connection.execute("ROLLBACK")
        raise
    if after is not None:
        after(result)
    return result


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """The switch needs the file alone for a moment, and SQLite does not wait for that by itself."""
    ends_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > ends_at:
                raise
            time.sleep(_RETRY_AFTER_S)


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _NO_ROOM_BYTES
    except OSError:
        return False
