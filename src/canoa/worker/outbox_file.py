"""The outbox as a file: how it is laid out, opened, locked, and looked at from outside.

SQLite with a write-ahead log, so that whoever looks on disturbs nobody. `synchronous=FULL`: what is kept is
acknowledged to the broker, which then forgets it, so it must outlive a power cut and not only this process. What that
costs is paid where the link is down anyway, and once for a group of answers.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from pathlib import Path

log = get_logger(__name__)

VERSION: Final = 1
LOCKED_WITHIN_S: Final = 5.0
"""How long one that leaves may take to let go of the file."""

LOG_BYTES: Final = 4 * 1024 * 1024
"""To which SQLite cuts its log back."""

_LAYOUT: Final = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL UNIQUE,
    attempt TEXT NOT NULL,
    action TEXT NOT NULL,
    kept_ms INTEGER NOT NULL,
    sent_ms INTEGER,
    bytes INTEGER NOT NULL,
    message BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_sent ON answers (sent_ms, id);
CREATE TABLE IF NOT EXISTS totals (dropped INTEGER NOT NULL);
INSERT INTO totals SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM totals);
PRAGMA user_version = {VERSION};
COMMIT;
"""


class OutboxUnusable(CanoaError):
    """The file cannot be had: no right to it, no room, another worker has it. Nothing in it was changed."""


class Lock:
    """Of one worker on one outbox; the system lets go of it, also when the worker is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> None:
        """Raises `BlockingIOError`."""
        ends_s = time.monotonic() + LOCKED_WITHIN_S
        while True:
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > ends_s:
                    raise
                time.sleep(0.05)

    def release(self) -> None:
        os.close(self._file)


def is_held(path: Path) -> bool:
    """Whether a worker has this outbox. Looked at for an instant: one that starts meanwhile tries again."""
    try:
        with path.with_name(f"{path.name}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever had it, or it is not ours to look at
        return False
    return False


def opened_file(path: Path) -> tuple[sqlite3.Connection, Lock]:
    """Raises `OutboxUnusable`. A file that is broken is put aside, and another one begun."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path)
    except OSError as exc:
        raise OutboxUnusable(f"the outbox {path} cannot be made: {exc.strerror}") from exc
    try:
        lock.take()
        return _database(path), lock
    except BlockingIOError as exc:
        lock.release()
        raise OutboxUnusable(f"another worker has the outbox {path}; give each one its own") from exc
    except (sqlite3.Error, OSError) as exc:
        lock.release()
        raise OutboxUnusable(f"the outbox {path} cannot be opened: {exc}") from exc
    except OutboxUnusable:
        lock.release()
        raise


def _database(path: Path) -> sqlite3.Connection:
    try:
        return _laid_out(path)
    except sqlite3.OperationalError:  # the disk or the rights, not the file's own fault
        raise
    except sqlite3.DatabaseError as exc:
        aside = path.with_name(f"{path.name}.broken")
        log.error("outbox_broken", path=str(path), put_aside=str(aside), reason=str(exc))
        path.replace(aside)
        for rest in ("-wal", "-shm"):
            path.with_name(path.name + rest).unlink(missing_ok=True)
        return _laid_out(path)


def _laid_out(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # answers are nobody else's business
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=LOCKED_WITHIN_S)
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise OutboxUnusable(f"the outbox {path} was written by a newer version; upgrade, or give another file")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        database.executescript(_LAYOUT)
    except BaseException:
        database.close()
        raise
    return database


# --- Seen from outside ----------------------------------------------------------------------------------


class ActionWaiting(msgspec.Struct, frozen=True, kw_only=True):
    action: str
    messages: int
    bytes: int
    oldest_ms: int


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in an outbox, and what it ever dropped. `is_held`: a worker has it just now."""

    path: str
    is_held: bool
    messages: int
    bytes: int
    oldest_ms: int | None
    remembered: int
    dropped: int
    actions: list[ActionWaiting]


def look(path: Path) -> Seen:
    """Also while its worker writes to it. Raises `OutboxUnusable`."""
    if not path.is_file():
        raise OutboxUnusable(
            f"there is no outbox {path}; a worker with a name makes one: canoa worker … --node-id gw-1"
        )
    try:
        with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)) as database:
            return _seen(path, database)
    except sqlite3.Error as exc:
        raise OutboxUnusable(f"the outbox {path} cannot be read: {exc}") from exc


def _seen(path: Path, database: sqlite3.Connection) -> Seen:
    database.execute("BEGIN")  # one moment for all of it
    rows = database.execute(
        "SELECT action, count(*), sum(bytes), min(kept_ms) FROM answers"
        " WHERE sent_ms IS NULL GROUP BY action ORDER BY 4"
    ).fetchall()
    actions = [ActionWaiting(action=row[0], messages=row[1], bytes=row[2], oldest_ms=row[3]) for row in rows]
    (remembered,) = database.execute("SELECT count(*) FROM answers WHERE sent_ms IS NOT NULL").fetchone()
    (dropped,) = database.execute("SELECT dropped FROM totals").fetchone()
    return Seen(
        path=str(path),
        is_held=is_held(path),
        messages=sum(each.messages for each in actions),
        bytes=sum(each.bytes for each in actions),
        oldest_ms=min((each.oldest_ms for each in actions), default=None),
        remembered=remembered,
        dropped=dropped,
        actions=actions,
    )
