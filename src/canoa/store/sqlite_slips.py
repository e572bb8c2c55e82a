"""Quick tasks, first put down as one row each, and copied into their tables soon after, many at a time.

A task that has ended by the time it is written touches eleven trees of the file: its row and its step's, their
indexes, what is owed. Its caller would wait for all of them. A *slip* holds the values of those rows, and is one row of
one tree: once it is committed, a kill cannot undo what it says any more. Every transaction in a writer's thread copies
slips first, whoever put them down: so what it reads and changes is as if there were none. Whoever only reads has them
copied before, if they are this program's own; another program's are seen a moment later.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.logs import get_logger
from canoa.store import sqlite_routed
from canoa.store.sqlite_routed import RoutedRows
from canoa.store.sqlite_rows import Lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.store.routed_ledger import RoutedLedger
    from canoa.store.sqlite_link import SqliteLink

log = get_logger(__name__)

COPY_AFTER_S: Final = 0.1
MANY: Final = 32
"""How long slips wait for company, if there are not so many before. Longer spares writes to the tables, and lets other
programs see later how a task ended."""

MAX_INT: Final = 2**63 - 1
_INSERT: Final = "INSERT INTO slips (content) VALUES (?)"
_ARE_THERE: Final = "SELECT 1 FROM slips WHERE error IS NULL LIMIT 1"
_SELECT: Final = "SELECT number, content FROM slips WHERE error IS NULL ORDER BY number"
_DELETE: Final = "DELETE FROM slips WHERE error IS NULL"
_SET_ASIDE: Final = "INSERT INTO slips (number, content, error) VALUES (?, ?, ?)"
_UNUSABLE: Final = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
    *(msgspec.MsgspecError, OverflowError, ValueError, TypeError),
)
"""What is wrong with a slip, and not with the disk."""

_THERE: Final = Lookup("SELECT id FROM tasks", "id")


class Slip(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The values of new rows, in the order of their columns; `spent`: numbers of bills whose rows are to go."""

    plans: list[Any]
    tasks: list[Any]
    steps: list[Any]
    spent: list[Any]
    bills: list[Any]


_encoder = msgspec.msgpack.Encoder()
_decode = msgspec.msgpack.Decoder(Slip).decode


class Slips:
    """Those that this program has put down and that are not copied yet. `writer` copies them with whatever its thread
    writes. Belongs to the event loop."""

    def __init__(self, writer: SqliteLink) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._task_ids: set[str] = set()
        self._since = 0  # how much the thread had written by then
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def are_left(self) -> bool:
        if self._task_ids and self._writer.in_thread != self._since:
            self._task_ids.clear()
        return bool(self._task_ids)

    def tell_of(self, task_ids: Iterable[str]) -> bool:
        """Of any of these tasks: the tables do not."""
        return not self._task_ids.isdisjoint(task_ids) and self.are_left()

    def add(self, task_ids: Iterable[str]) -> None:
        """They were put down just now."""
        if not self.are_left():
            self._since = self._writer.in_thread
        self._task_ids.update(task_ids)
        if self._timer is None:
            self._timer = self._loop.call_later(COPY_AFTER_S, self._copy)
        elif len(self._task_ids) >= MANY:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._copy)  # what follows from them leaves first

    async def copy(self) -> None:
        if self.are_left():
            await self._writer.write(_nothing)

    async def try_to_copy(self) -> None:
        """Whoever writes next tries again, or whoever opens the store."""
        try:
            await self.copy()
        except Exception as exc:
            self._on_copied(exc)

    async def aclose(self) -> None:
        """What is put down afterwards is left to whoever opens the store next."""
        await self.try_to_copy()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _copy(self) -> None:
        self._timer = None
        if self.are_left() and not self._is_closed:
            self._writer.start_write(_nothing, self._on_copied)

    def _on_copied(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("slips_not_copied", tasks=len(self._task_ids), reason=str(error))


def slip_of(ledger: RoutedLedger, rows: RoutedRows) -> bytes | None:
    """None: it says more than that new tasks have ended, or what a table would not take."""
    plans, tasks, updated_tasks, ended_tasks, steps, updated_steps, spent, bills, old_steps, old_running = rows
    if updated_tasks or ended_tasks or updated_steps or old_steps or old_running or not tasks:
        return None
    if not (ledger.has_only_new and ledger.has_ended_all and _fit(tasks) and _fit(steps)):
        return None
    return _encoder.encode((plans, tasks, steps, spent, bills))


def put_down(connection: sqlite3.Connection, content: bytes) -> None:
    connection.execute(_INSERT, (content,))


def are_new(connection: sqlite3.Connection, task_ids: Sequence[str]) -> bool:
    """Also to those who share the file: copying is too late for finding out."""
    return not _THERE.rows(connection, task_ids)


def are_there(connection: sqlite3.Connection) -> bool:
    return connection.execute(_ARE_THERE).fetchone() is not None


def copy(connection: sqlite3.Connection) -> None:
    """Inside a transaction: all slips into their tables, in the order in which they were put down. Taken away first, so
    that a full disk has room for what they say."""
    found = connection.execute(_SELECT).fetchall()
    if not found:
        return
    connection.execute(_DELETE)
    connection.execute("SAVEPOINT slips")
    try:
        sqlite_routed.write(connection, _together([_decode(content) for _, content in found]))
    except _UNUSABLE:
        connection.execute("ROLLBACK TO slips")
        for number, content in found:
            _copy_alone(connection, number, content)
    connection.execute("RELEASE slips")


def _copy_alone(connection: sqlite3.Connection, number: int, content: bytes) -> None:
    """One that no table takes, which none of ours makes, is set aside: it must not be in the way of every other write
    for ever, and may be all that is left of a task."""
    connection.execute("SAVEPOINT slip")
    try:
        sqlite_routed.write(connection, _together([_decode(content)]))
    except _UNUSABLE as exc:
        connection.execute("ROLLBACK TO slip")
        connection.execute(_SET_ASIDE, (number, content, str(exc)))
        log.error("slip_set_aside", number=number, reason=str(exc))
    connection.execute("RELEASE slip")


def _together(slips: Sequence[Slip]) -> RoutedRows:
    """Each of them has tasks of its own, so only bills meet: one that was paid since needs no row at all."""
    spent = {number for slip in slips for (number,) in slip.spent}
    bills = [bill for slip in slips for bill in slip.bills]
    return RoutedRows(
        plans=[row for slip in slips for row in slip.plans],
        new_tasks=[row for slip in slips for row in slip.tasks],
        updated_tasks=(),
        ended_tasks=(),
        whole_steps=[row for slip in slips for row in slip.steps],
        updated_steps=(),
        spent=[(number,) for number in spent.difference(bill[0] for bill in bills)],
        bills=[bill for bill in bills if bill[0] not in spent],
    )


def _nothing(_: sqlite3.Connection) -> None:
    """Every transaction copies slips first."""


def _fit(rows: Iterable[Sequence[Any]]) -> bool:
    """Into SQLite's integers: whatever else a column refuses, nothing makes."""
    for row in rows:
        for value in row:
            if type(value) is int and not -MAX_INT <= value <= MAX_INT:
                return False
    return True
