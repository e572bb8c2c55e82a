"""What a node still has to tell its managers, in a file of its own: bounded, and there again after a reboot.

An answer waits here until it is sent, and is remembered for a while after that: a request that comes again is answered
from here, and not run again. What finds no room is dropped by a policy, counted, and said. The file knows nothing of
the way by which answers travel.

An `Outbox` belongs to one thread. The one that writes for an event loop is in `outbox_writer.py`.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.port import Message
from canoa.clock import now_ms
from canoa.errors import SettingError
from canoa.vocabulary import Drop
from canoa.wire.bundle import Part
from canoa.worker.outbox_file import Lock, OutboxUnusable, opened_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROW_BYTES: Final = 200
"""What a row costs besides its texts and its message: counted, so that many small ones cannot grow the file at will."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Part)


class OutboxLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_messages: int = 10_000  # those that wait and those that are remembered
    max_bytes: int = 64 * 1024 * 1024  # of both; the file is a little larger, and does not shrink
    drop: Drop = Drop.OLDEST
    remember_s: float = 3600.0  # how long what was sent answers requests that come again

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.max_bytes < 1 or self.remember_s < 0:
            raise SettingError(
                f"outbox_max_messages={self.max_messages}, outbox_max_bytes={self.max_bytes}: use 1 or more of each"
            )


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to keep. `attempt`: what it also answers, should a manager send that again under another request id;
    empty: nothing else."""

    request_id: str
    message: Message
    action: str = ""
    attempt: str = ""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    entry: Entry
    kept_ms: int


class Gone(msgspec.Struct, frozen=True):
    """No longer in the file."""

    request_id: str
    attempt: str


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """It is in the file: on disk once its group is committed. Others gave way to it: `dropped` unsent, `forgotten` long
    sent."""

    id: int
    dropped: tuple[Gone, ...] = ()
    forgotten: tuple[Gone, ...] = ()


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """It is not in the file. `is_refused`: by no fault and no choice of the policy's: it may be tried elsewhere."""

    why: str
    is_refused: bool = False


class OutboxStats(msgspec.Struct, kw_only=True):
    messages: int = 0  # that wait
    bytes: int = 0  # of those
    dropped: int = 0  # ever, as the file counts


class Outbox:
    """`open` it, and `close` it. Whatever is done within one `group` is on disk together, or not at all.

    Raises `sqlite3.Error` where the disk does not take it; the file is as before then.
    """

    def __init__(self, database: sqlite3.Connection, lock: Lock, limits: OutboxLimits, now: Callable[[], int]) -> None:
        self.stats = OutboxStats()
        self._database = database
        self._lock = lock
        self._limits = limits
        self._now_ms = now
        self._all_messages = self._all_bytes = 0  # with those that are remembered
        self._count()

    @classmethod
    def open(cls, path: Path, limits: OutboxLimits | None = None, *, now: Callable[[], int] = now_ms) -> Outbox:
        """Makes it where there is none. Raises `OutboxUnusable`; a broken file is put aside first."""
        database, lock = opened_file(path)
        try:
            return cls(database, lock, limits or OutboxLimits(), now)
        except sqlite3.Error as exc:
            database.close()
            lock.release()
            raise OutboxUnusable(f"the outbox {path} cannot be read: {exc}") from exc

    def close(self) -> None:
        self._database.close()
        self._lock.release()

    @contextmanager
    def group(self) -> Iterator[None]:
        """One transaction, and one sync of the disk, for all that is done inside."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._count()
            raise

    # --- Keeping --------------------------------------------------------------------------------------

    def put(self, entry: Entry) -> Kept | Dropped:
        """The first answer to a request stands, and waits again if it was sent: somebody asked for it once more."""
        known = self._one("SELECT id FROM answers WHERE request_id = ?", entry.request_id)
        if known is not None:
            self._wait_again(known)
            return Kept(id=known)
        body = _encode(entry.message)
        size = ROW_BYTES + len(body) + len(entry.request_id) + len(entry.attempt) + len(entry.action)
        if size > self._limits.max_bytes:
            self.count_dropped(1)
            return Dropped(why=f"its {size:,} bytes are more than the outbox may have", is_refused=True)
        forgotten = self._forget_sent(size)
        gone: list[Gone] = []
        while not self._has_room(size):
            if self._limits.drop is not Drop.OLDEST:
                self.count_dropped(1)
                return Dropped(why="the outbox is full", is_refused=self._limits.drop is Drop.REFUSE)
            gone.append(self._drop_oldest())
        row = (entry.request_id, entry.attempt, entry.action, self._now_ms(), size, body)
        added = self._database.execute(
            "INSERT INTO answers (request_id, attempt, action, kept_ms, bytes, message) VALUES (?, ?, ?, ?, ?, ?)", row
        )
        self._all_messages += 1
        self._all_bytes += size
        self.stats.messages += 1
        self.stats.bytes += size
        assert added.lastrowid is not None
        return Kept(id=added.lastrowid, dropped=tuple(gone), forgotten=tuple(forgotten))

    def sent(self, id: int) -> None:
        """It waits no longer, and is remembered. Nothing happens where it gave way meanwhile."""
        size = self._one("SELECT bytes FROM answers WHERE id = ? AND sent_ms IS NULL", id)
        if size is not None:
            self._database.execute("UPDATE answers SET sent_ms = ? WHERE id = ?", (self._now_ms(), id))
            self.stats.messages -= 1
            self.stats.bytes -= size

    def _wait_again(self, id: int) -> None:
        size = self._one("SELECT bytes FROM answers WHERE id = ? AND sent_ms IS NOT NULL", id)
        if size is not None:
            self._database.execute("UPDATE answers SET sent_ms = NULL WHERE id = ?", (id,))
            self.stats.messages += 1
            self.stats.bytes += size

    def drop(self, id: int) -> Gone | None:
        """It can never be sent."""
        return self._remove(id, is_dropped=True)

    def forget(self) -> list[Gone]:
        """What was sent so long ago that nobody will ask again."""
        before_ms = self._now_ms() - round(self._limits.remember_s * 1000)
        rows = self._database.execute("SELECT id FROM answers WHERE sent_ms <= ?", (before_ms,)).fetchall()
        return [gone for (id,) in rows if (gone := self._remove(id)) is not None]

    # --- Looking ----------------------------------------------------------------------------------------

    def waiting(
        self, *, limit: int = 100, max_bytes: int = 1 << 62, but: frozenset[int] = frozenset()
    ) -> list[Waiting]:
        """The oldest that wait, without those in `but`: so many, and of so many bytes, but one at least. What cannot
        be read any more is dropped: it would only be in the way."""
        found: list[Waiting] = []
        unreadable: list[int] = []
        rows = self._database.execute(
            "SELECT id, request_id, attempt, action, kept_ms, bytes, message FROM answers"
            " WHERE sent_ms IS NULL ORDER BY id LIMIT ?",
            (limit + len(but),),
        )
        for id, request_id, attempt, action, kept_ms, size, body in rows:
            if id in but:
                continue
            max_bytes -= size
            if found and (max_bytes < 0 or len(found) == limit):
                break
            message = _read(body)
            if message is None:
                unreadable.append(id)
                continue
            entry = Entry(request_id=request_id, attempt=attempt, action=action, message=message)
            found.append(Waiting(id=id, entry=entry, kept_ms=kept_ms))
        for id in unreadable:
            self.drop(id)
        return found

    def find(self, request_id: str) -> Entry | None:
        """Whether it waits, or was sent a while ago."""
        row = self._database.execute(
            "SELECT attempt, action, message FROM answers WHERE request_id = ?", (request_id,)
        ).fetchone()
        message = None if row is None else _read(row[2])
        if row is None or message is None:
            return None
        return Entry(request_id=request_id, attempt=row[0], action=row[1], message=message)

    def known(self) -> list[Gone]:
        """What each row answers."""
        return [Gone(*row) for row in self._database.execute("SELECT request_id, attempt FROM answers")]

    # --- Room -------------------------------------------------------------------------------------------

    def count_dropped(self, count: int) -> None:
        """Also of what never came here, for want of a disk that takes it."""
        self.stats.dropped += count
        self._database.execute("UPDATE totals SET dropped = dropped + ?", (count,))

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        return self._all_messages < limits.max_messages and self._all_bytes + size <= limits.max_bytes

    def _forget_sent(self, size: int) -> list[Gone]:
        """What is only remembered gives way first, and is not missed."""
        forgotten: list[Gone] = []
        while not self._has_room(size):
            oldest = self._one("SELECT id FROM answers WHERE sent_ms IS NOT NULL ORDER BY sent_ms, id LIMIT 1")
            gone = None if oldest is None else self._remove(oldest)
            if gone is None:
                break
            forgotten.append(gone)
        return forgotten

    def _drop_oldest(self) -> Gone:
        oldest = self._one("SELECT min(id) FROM answers WHERE sent_ms IS NULL")
        assert oldest is not None  # one that is larger than all the room was turned away
        gone = self._remove(oldest, is_dropped=True)
        assert gone is not None
        return gone

    def _remove(self, id: int, *, is_dropped: bool = False) -> Gone | None:
        row = self._database.execute(
            "SELECT request_id, attempt, bytes, sent_ms IS NULL FROM answers WHERE id = ?", (id,)
        ).fetchone()
        if row is None:
            return None
        self._database.execute("DELETE FROM answers WHERE id = ?", (id,))
        request_id, attempt, size, is_waiting = row
        self._all_messages -= 1
        self._all_bytes -= size
        if is_waiting:
            self.stats.messages -= 1
            self.stats.bytes -= size
        if is_dropped:
            self.count_dropped(1)
        return Gone(request_id, attempt)

    def _count(self) -> None:
        count = "SELECT count(*), coalesce(sum(bytes), 0) FROM answers"
        self._all_messages, self._all_bytes = self._database.execute(count).fetchone()
        waiting = self._database.execute(f"{count} WHERE sent_ms IS NULL").fetchone()
        self.stats.messages, self.stats.bytes = waiting
        self.stats.dropped = self._one("SELECT dropped FROM totals") or 0

    def _one(self, question: str, *values: object) -> int | None:
        row = self._database.execute(question, values).fetchone()
        return None if row is None else row[0]


def _read(body: bytes) -> Message | None:
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:  # a bit fell over, or another version wrote it
        return None
