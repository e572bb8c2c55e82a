"""One connection to a SQLite file, in a thread of its own: so a long read never holds up a write, nor the event loop.

Here are also the file's settings, and what SQLite's errors mean in the port's words.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.logs import get_logger
from canoa.store.own_thread import OwnThread
from canoa.store.port import Writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = get_logger(__name__)

Result = TypeVar("Result")

BUSY_TIMEOUT_S: Final = 10.0
"""How long a write waits for another program's. Longer rides out bigger groups and slower disks."""

_RETRY_AFTER_S: Final = 0.02
_NO_ROOM_BYTES: Final = 1024 * 1024  # the write-ahead log's index grows by 32 KiB, its log by whole transactions

LOG_PAGES: Final = 4000
"""Of the write-ahead log, until they are written into the file. Fewer make every tenth group wait for that."""

_PATIENT: Final = f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_S * 1000)}"
_CHECKPOINTING: Final = f"PRAGMA wal_autocheckpoint={LOG_PAGES}"
_SYNCED: Final = "PRAGMA synchronous=FULL"  # a commit is on disk when it returns, also after a power cut
_SETTINGS: Final = (
    _SYNCED,
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-32768",  # KiB; holds the inner pages of the indexes of some million tasks
    _CHECKPOINTING,
    "PRAGMA journal_size_limit=67108864",
)
# Primary codes (https://www.sqlite.org/rescode.html): the low byte of what the driver reports.
_UNUSABLE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_FORBIDDEN: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_OF_A_VALUE: Final = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}


class Busy(Exception):
    """Somebody else writes just now."""


class SqliteLink:
    """A thread with a connection to the file. `name` is the thread's. `first`: what every transaction in the thread
    begins with. Not open yet."""

    def __init__(self, path: Path, *, name: str, first: Callable[[sqlite3.Connection], None] = lambda _: None) -> None:
        self._path = path
        self._name = name
        self._first = first
        self._thread: OwnThread | None = None
        self._connection: sqlite3.Connection | None = None
        self._is_hasty = False
        self.writes = Writes()  # never repeated: each is alone from its beginning
        self.in_thread = 0  # how many of them the thread has committed

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
        return await self._in_thread(lambda: work(self._patient()))

    async def write(
        self, work: Callable[[sqlite3.Connection], Result], *, after: Callable[[Result], None] | None = None
    ) -> Result:
        """In one transaction, on disk when it returns; alone from the beginning, so what `work` reads stays true.
        `after`: with the result, in the same thread, before anybody else writes; not if it was not committed."""
        result = await self._in_thread(lambda: self._transaction(work, after))
        self.writes.done += 1
        return result

    def start_write(
        self, work: Callable[[sqlite3.Connection], None], on_end: Callable[[Exception | None], None]
    ) -> None:
        """Like `write`, for whoever does not wait: `on_end` hears of the end, on the event loop, and of what went
        wrong."""
        if self._thread is None:
            raise self._closed()
        self._thread.start(lambda: self._transaction(work), partial(self._on_end, on_end))

    def _transaction(
        self, work: Callable[[sqlite3.Connection], Result], after: Callable[[Result], None] | None = None
    ) -> Result:
        """In the thread."""

        def first_and_work(connection: sqlite3.Connection) -> Result:
            self._first(connection)
            return work(connection)

        result = _transaction(self._patient(), first_and_work)
        self.in_thread += 1  # here, and not on the event loop, which may write itself before it hears of this one
        if after is not None:
            after(result)
        return result

    def _on_end(self, on_end: Callable[[Exception | None], None], _: None, error: Exception | None) -> None:
        self.writes.done += error is None
        on_end(error if error is None else self.explained(error))

    def write_here(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Like `write`, on the event loop, for what takes less time than handing it over; without what others `first`
        do. Raises `Busy` rather than wait for the thread, or for another program. The log is left as long as it gets,
        and is not brought to disk: see `sqlite_syncing.py`."""
        if self._thread is None:
            raise self._closed()
        if not self._thread.is_idle:
            raise Busy
        try:
            _transaction(self._hasty(), work)
        except (sqlite3.Error, OverflowError) as exc:
            raise Busy if _code(exc) == sqlite3.SQLITE_BUSY else self.explained(exc) from exc
        self.writes.done += 1

    def start_checkpoint(self, on_end: Callable[[Exception | None], None]) -> None:
        """Write all of the log into the file, and that to disk. `on_end` hears, on the event loop, why not."""
        if self._thread is None:
            raise self._closed()
        self._thread.start(lambda: checkpoint(self._patient()), lambda _, error: on_end(error))

    def start_growing(self) -> None:
        """The log, in the thread, should nobody else write meanwhile: it would grow by itself, too."""
        if self._thread is not None:
            self._thread.start(lambda: grow_log(self._patient()), _ignored)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            raise self._closed()
        try:
            return await self._thread.run(work)
        except (sqlite3.Error, OverflowError) as exc:
            raise self.explained(exc) from exc

    def _closed(self) -> StoreUnreachable:
        return StoreUnreachable(f"the store {self._path} is closed; open it before you use it")

    def explained(self, error: Exception) -> Exception:
        """In the port's words, where it is one of SQLite's."""
        if isinstance(error, sqlite3.Error):
            return translated(error, self._path)
        if isinstance(error, OverflowError):
            return WrongUse(f"a value that the store {self._path} cannot keep: {error}")
        return error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:  # its opening failed
            raise StoreUnreachable(
                f"the store {self._path} is not open; open it first, and do not use it after closing"
            )
        return self._connection

    def _patient(self) -> sqlite3.Connection:
        """For the thread: it waits for others, and writes the log into the file. It changes when it must: each change
        takes as long as a row."""
        connection = self._opened()
        if self._is_hasty:
            connection.execute(_PATIENT)
            connection.execute(_CHECKPOINTING)
            connection.execute(_SYNCED)
            self._is_hasty = False
        return connection

    def _hasty(self) -> sqlite3.Connection:
        """For the event loop: it waits neither for others nor for the disk."""
        connection = self._opened()
        if not self._is_hasty:
            self._is_hasty = True
            connection.execute("PRAGMA busy_timeout=0")
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute("PRAGMA synchronous=NORMAL")
        return connection

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


def checkpoint(connection: sqlite3.Connection) -> None:
    """Raises where somebody who reads or writes is in the way."""
    is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if is_busy:
        raise Busy("the log is in use")


def grow_log(connection: sqlite3.Connection) -> None:
    """To the size that it will have anyway: a commit that makes a file longer takes half as long again as one that
    overwrites. Nothing is changed, many times; that is as safe as any commit, since none of it need survive."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    try:
        connection.execute("PRAGMA busy_timeout=0")  # whoever else reads or writes goes first
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        for _ in range(LOG_PAGES):
            connection.execute(f"PRAGMA user_version={version}")
    finally:
        for setting in _SETTINGS:
            connection.execute(setting)
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute(_PATIENT)


def translated(exc: sqlite3.Error, path: Path) -> CanoaError:
    """What a caller can do about it."""
    code = _code(exc)
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


def _transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have rolled back already
            connection.execute("ROLLBACK")
        raise
    return result


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """The switch needs the file alone for a moment, and SQLite does not wait for that by itself."""
    ends_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            if _code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() > ends_at:
                raise
            time.sleep(_RETRY_AFTER_S)


def _ignored(_: object, error: Exception | None) -> None:
    log.debug("log_grown", error=None if error is None else repr(error))


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _NO_ROOM_BYTES
    except OSError:
        return False
