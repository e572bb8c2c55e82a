"""The store in a PostgreSQL database: many programs on many machines.

A pool of connections comes back by itself after a cut: see `postgres_link.py`. What a batch does is decided in
`ledger.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from canoa.store import postgres_batch, postgres_limits, reads
from canoa.store.packing import unpack_message
from canoa.store.postgres_link import PostgresLink
from canoa.store.postgres_schema import bring_up_to_date

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

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


class PostgresStore:
    """In the database that `url` names, which must exist; `open` creates the tables."""

    def __init__(self, url: str) -> None:
        self._link = PostgresLink(url)

    def __repr__(self) -> str:
        return f"PostgresStore({self._link.place!r})"

    # --- Its life -----------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._link.open()
            await bring_up_to_date(self._link)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._link.aclose()

    # --- Changes ------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        return await self._link.write(partial(postgres_batch.apply, changes=changes))

    async def take_outbox(self, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        work = partial(postgres_limits.take_outbox, now_ms=now_ms, limit=limit, for_ms=for_ms)
        return await self._link.write(work)

    async def forget(self, retention: Retention, *, now_ms: int, limit: int) -> int:
        work = partial(postgres_limits.forget, retention=retention, now_ms=now_ms, limit=limit)
        return await self._link.write(work)

    # --- Questions ----------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> TaskRow | None:
        rows = await self._ask(reads.task("postgresql", task_id))
        return reads.task_row(rows[0]) if rows else None

    async def result(self, task_id: TaskId) -> Message | None:
        rows = await self._ask(reads.result("postgresql", task_id))
        return unpack_message(rows[0][0]) if rows and rows[0][0] is not None else None

    async def tasks(self, wanted: TaskFilter, *, limit: int, before: Cursor | None = None) -> list[TaskRow]:
        rows = await self._ask(reads.task_page("postgresql", wanted, limit=limit, before=before))
        return [reads.task_row(row) for row in rows]

    async def unfinished(
        self, *, limit: int, after: Cursor | None = None, without_outbox: bool = False
    ) -> list[NewTask]:
        asked = reads.unfinished("postgresql", limit=limit, after=after, without_outbox=without_outbox)
        rows = await self._ask(asked)
        return [reads.new_task(row) for row in rows]

    async def letters(
        self, *, limit: int, action: ActionName | None = None, before: Cursor | None = None
    ) -> list[Letter]:
        rows = await self._ask(reads.letter_page("postgresql", limit=limit, action=action, before=before))
        return [reads.letter_of(row) for row in rows]

    async def letter(self, task_id: TaskId) -> Letter | None:
        rows = await self._ask(reads.letter("postgresql", task_id))
        return reads.letter_of(rows[0]) if rows else None

    async def _ask(self, asked: reads.Asked | None) -> list[Record]:
        return [] if asked is None else await self._link.fetch(asked.sql, *asked.arguments)

    # --- Leases and limits --------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        work = partial(postgres_limits.lease, name=name, owner=owner, now_ms=now_ms, for_ms=for_ms)
        return await self._link.write(work)

    async def release(self, name: str, owner: str) -> None:
        await self._link.write(partial(postgres_limits.release, name=name, owner=owner))

    async def holder(self, name: str) -> Lease | None:
        rows = await self._ask(reads.holder("postgresql", name))
        return reads.lease_of(rows[0]) if rows else None

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        work = partial(
            postgres_limits.reserve,
            key=key,
            count=count,
            per_ms=per_ms,
            burst=burst,
            now_ms=now_ms,
            within_ms=within_ms,
        )
        return await self._link.write(work)

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        work = partial(postgres_limits.take_slot, key=key, holder=holder, limit=limit, now_ms=now_ms, for_ms=for_ms)
        return await self._link.write(work)

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        await self._link.write(partial(postgres_limits.free_slots, holders=holders))


_port: type[Store] = PostgresStore
