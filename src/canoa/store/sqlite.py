"""The store in one SQLite file: no server, several programs at a time, a million tasks and more.

One thread writes, another reads: see `sqlite_link.py`. What a batch does is decided in `ledger.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from canoa.errors import SettingError
from canoa.store import reads, sqlite_batch, sqlite_limits
from canoa.store.questions import StoreReads
from canoa.store.sqlite_link import SqliteLink
from canoa.store.sqlite_schema import bring_up_to_date

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from canoa.store.port import (
        Answer,
        Change,
        Lease,
        OutboxRow,
        Retention,
        Store,
    )


class SqliteStore(StoreReads):
    """In the file at `path`, which `open` creates, with its folder, where there is none."""

    _dialect = "sqlite"

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
