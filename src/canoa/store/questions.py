"""The questions of the store port, which differ between databases only in how a statement is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from canoa.store import reads
from canoa.store.packing import unpack_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Message
    from canoa.store.port import Cursor, Lease, Letter, NewTask, TaskFilter, TaskRow
    from canoa.vocabulary import ActionName, TaskId


class StoreReads(ABC):
    """Half of an adapter: it says its dialect, and `_ask` fetches."""

    _dialect: str

    @abstractmethod
    async def _ask(self, asked: reads.Asked | None) -> Sequence[reads.Row]:
        """The rows; none where there is nothing to ask."""

    async def _ask_of_tasks(self, asked: reads.Asked | None) -> Sequence[reads.Row]:
        """The same about tasks that may have ended just now: where their rows may be late, they are written first."""
        return await self._ask(asked)

    async def task(self, task_id: TaskId) -> TaskRow | None:
        rows = await self._ask_of_tasks(reads.task(self._dialect, task_id))
        return reads.task_row(rows[0]) if rows else None

    async def result(self, task_id: TaskId) -> Message | None:
        rows = await self._ask_of_tasks(reads.result(self._dialect, task_id))
        return unpack_message(rows[0][0]) if rows and rows[0][0] is not None else None

    async def tasks(self, wanted: TaskFilter, *, limit: int, before: Cursor | None = None) -> list[TaskRow]:
        rows = await self._ask_of_tasks(reads.task_page(self._dialect, wanted, limit=limit, before=before))
        return [reads.task_row(row) for row in rows]

    async def unfinished(
        self, *, limit: int, after: Cursor | None = None, without_outbox: bool = False
    ) -> list[NewTask]:
        asked = reads.unfinished(self._dialect, limit=limit, after=after, without_outbox=without_outbox)
        rows = await self._ask(asked)
        return [reads.new_task(row) for row in rows]

    async def letters(
        self, *, limit: int, action: ActionName | None = None, before: Cursor | None = None
    ) -> list[Letter]:
        rows = await self._ask(reads.letter_page(self._dialect, limit=limit, action=action, before=before))
        return [reads.letter_of(row) for row in rows]

    async def letter(self, task_id: TaskId) -> Letter | None:
        rows = await self._ask(reads.letter(self._dialect, task_id))
        return reads.letter_of(rows[0]) if rows else None

    async def holder(self, name: str) -> Lease | None:
        rows = await self._ask(reads.holder(self._dialect, name))
        return reads.lease_of(rows[0]) if rows else None
