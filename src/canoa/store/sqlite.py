"""The store in one SQLite file: no server, several programs at a time, a million tasks and more.

One thread writes, another reads: see `sqlite_link.py`. What a batch does is decided in `ledger.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from canoa.errors import SettingError
from canoa.store import reads, sqlite_batch, sqlite_limits
from canoa.store.packing import unpack_message
from canoa.store.sqlite_link import SqliteLink
from canoa.store.sqlite_schema import bring_up_to_date

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from canoa.broker.port import Message
    from canoa.store.port import (
        Answer,
        Change,
        Cursor,
        Lease,
        Letter,
        NewTask,
        OutboxRow,
        Retention,
        Store,
        TaskFilter,
        TaskRow,
    )
    from canoa.vocabulary import ActionName, TaskId


class SqliteStore:
    """In the file at `path`, which `open` creates, with its folder, where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = SqliteLink(path, name="canoa-store-write")
        self._reader = SqliteLink(path, name="canoa-store-read")

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    # --- Its life -----------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise SettingError(f"the folder of the store {self._path} cannot be made: {exc}") from exc
        try:
            await self._writer.open()
            await self._writer.read(partial(bring_up_to_date, path=self._path))
            await self._reader.open()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        # The reader first: whoever closes last also empties the write-ahead log, and only the writer should.
        await self._reader.aclose()
        await self._writer.aclose()

    # --- Changes ------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        return await self._writer.write(partial(sqlite_batch.apply, changes=changes))

    async def take_outbox(self, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        work = partial(sqlite_limits.take_outbox, now_ms=now_ms, limit=limit, for_ms=for_ms)
        return await self._writer.write(work)

    async def forget(self, retention: Retention, *, now_ms: int, limit: int) -> int:
        work = partial(sqlite_limits.forget, retention=retention, now_ms=now_ms, limit=limit)
        return await self._writer.write(work)

    # --- Questions ----------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> TaskRow | None:
        rows = await self._ask(reads.task("sqlite", task_id))
        return reads.task_row(rows[0]) if rows else None

    async def result(self, task_id: TaskId) -> Message | None:
        rows = await self._ask(reads.result("sqlite", task_id))
        return unpack_message(rows[0][0]) if rows and rows[0][0] is not None else None

    async def tasks(self, wanted: TaskFilter, *, limit: int, before: Cursor | None = None) -> list[TaskRow]:
        rows = await self._ask(reads.task_page("sqlite", wanted, limit=limit, before=before))
        return [reads.task_row(row) for row in rows]

    async def unfinished(
        self, *, limit: int, after: Cursor | None = None, without_outbox: bool = False
    ) -> list[NewTask]:
        asked = reads.unfinished("sqlite", limit=limit, after=after, without_outbox=without_outbox)
        rows = await self._ask(asked)
        return [reads.new_task(row) for row in rows]

    async def letters(
        self, *, limit: int, action: ActionName | None = None, before: Cursor | None = None
    ) -> list[Letter]:
        rows = await self._ask(reads.letter_page("sqlite", limit=limit, action=action, before=before))
        return [reads.letter_of(row) for row in rows]

    async def letter(self, task_id: TaskId) -> Letter | None:
        rows = await self._ask(reads.letter("sqlite", task_id))
        return reads.letter_of(rows[0]) if rows else None

    async def _ask(self, asked: reads.Asked | None) -> list[reads.Row]:
        if asked is None:
            return []

        def fetched(connection: sqlite3.Connection) -> list[reads.Row]:
            return connection.execute(asked.sql, asked.arguments).fetchall()

        return await self._reader.read(fetched)

    # --- Leases and limits --------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        work = partial(sqlite_limits.lease, name=name, owner=owner, now_ms=now_ms, for_ms=for_ms)
        return await self._writer.write(work)

    async def release(self, name: str, owner: str) -> None:
        await self._writer.write(partial(sqlite_limits.release, name=name, owner=owner))

    async def holder(self, name: str) -> Lease | None:
        rows = await self._ask(reads.holder("sqlite", name))
        return reads.lease_of(rows[0]) if rows else None

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        work = partial(
            sqlite_limits.reserve,
            key=key,
            count=count,
            per_ms=per_ms,
            burst=burst,
            now_ms=now_ms,
            within_ms=within_ms,
        )
        return await self._writer.write(work)

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        work = partial(sqlite_limits.take_slot, key=key, holder=holder, limit=limit, now_ms=now_ms, for_ms=for_ms)
        return await self._writer.write(work)

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        await self._writer.write(partial(sqlite_limits.free_slots, holders=holders))


_port: type[Store] = SqliteStore
