"""The managers' questions of the store port, which differ between databases only in how a statement is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.execution.compensation import shown
from canoa.execution.step_records import BLOCKED, steps_of
from canoa.store import routed_reads
from canoa.store.packing import plain
from canoa.store.questions import StoreReads
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.plan import Plan
    from canoa.execution.step_records import StepRecord
    from canoa.store.reads import Asked, Row
    from canoa.store.routed_port import BreakerRow, Due, NodeRow, StepRow
    from canoa.vocabulary import TaskId


class RoutedReads(StoreReads):
    """Half of an adapter, like the class it extends."""

    async def _ask_of_steps(self, asked: Asked) -> Sequence[Row]:
        """Where rows of what is out may be late, they are written first."""
        return await self._ask(asked)

    def _without_rows(self, steps: list[StepRecord]) -> list[StepRecord]:
        """What they are without their rows: where those may be late, some are out."""
        return steps

    async def steps(self, task_id: TaskId) -> list[StepRow]:
        found = await self._ask_of_tasks(routed_reads.plan_of(self._dialect, task_id))
        if not found:
            return []
        outline = routed_reads.outline_from(found[0])
        before = self._without_rows(steps_of(plain(task_id), outline, ()))  # a row that is read afterwards says more
        rows = await self._ask_of_tasks(routed_reads.steps_of(self._dialect, task_id))
        after = self._without_rows(steps_of(plain(task_id), outline, rows))
        known = [
            was if now.state == BLOCKED and not now.is_stored else now for was, now in zip(before, after, strict=True)
        ]
        return [routed_reads.step_row(each, outline) for each in shown(outline, known)]

    async def step_output(self, task_id: TaskId, step: int) -> bytes | None:
        rows = await self._ask_of_tasks(routed_reads.output(self._dialect, task_id, step))
        found: bytes | None = rows[0][0] if rows else None
        return found

    async def plan_of(self, task_id: TaskId) -> Plan | None:
        rows = await self._ask_of_tasks(routed_reads.plan_of(self._dialect, task_id))
        return routed_reads.plan_from(rows[0]) if rows else None

    async def due_steps(self, *, now_ms: int, limit: int) -> list[Due]:
        rows = await self._ask(routed_reads.due(self._dialect, now_ms=now_ms, limit=limit))
        return [routed_reads.due_of(row) for row in rows]

    async def sent_steps(self, node_id: NodeId, *, limit: int) -> list[str]:
        rows = await self._ask_of_steps(routed_reads.sent(self._dialect, node_id, limit=limit))
        return [routed_reads.request_of(row) for row in rows]

    async def queued_for(self) -> dict[NodeId, int]:
        rows = await self._ask(routed_reads.queued(self._dialect))
        return {NodeId(node_id): count for node_id, count in rows if node_id is not None}

    async def open_steps(self, *, limit: int, after: Due | None = None) -> list[Due]:
        rows = await self._ask_of_steps(routed_reads.open_steps(self._dialect, limit=limit, after=after))
        return [routed_reads.due_of(row) for row in rows]

    async def plan(self, name: str) -> Plan | None:
        rows = await self._ask(routed_reads.named_plan(self._dialect, name))
        return routed_reads.plan_from(rows[0]) if rows else None

    async def plans(self) -> list[Plan]:
        rows = await self._ask(routed_reads.named_plans(self._dialect))
        return [routed_reads.plan_from(row) for row in rows]

    async def plan_names(self, *, limit: int) -> list[str]:
        return [name for (name,) in await self._ask(routed_reads.names_of_plans(self._dialect, limit=limit))]

    async def nodes(self, *, since: int = 0) -> list[NodeRow]:
        rows = await self._ask(routed_reads.nodes_since(self._dialect, since))
        return [routed_reads.node_row(row) for row in rows]

    async def breakers(self) -> list[BreakerRow]:
        rows = await self._ask(routed_reads.all_breakers(self._dialect))
        return [routed_reads.breaker_row(row) for row in rows]
