"""Moves on PostgreSQL: lock and load the rows of the tasks they touch, let the ledger decide, write what came out.

The lock on a task's row guards its steps: whoever moves one of them holds it. Whole columns travel as arrays: one
statement for many rows.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from canoa.execution.step_records import StepRecord
from canoa.store.ledger import TaskRecord
from canoa.store.packing import unpack_publication
from canoa.store.postgres_batch import (
    CHANGING,
    INSERT_TASKS,
    SELECT_TASKS,
    TASK,
    columns_of,
    inserting,
    updating,
)
from canoa.store.postgres_catalogue import UPSERT_PLANS
from canoa.store.postgres_writes import Writes
from canoa.store.routed_ledger import RoutedLedger, needs_of, rounds
from canoa.store.routed_port import HOLD_OWED_MS, Owed
from canoa.store.schema import owed, steps, tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import Outline
    from canoa.execution.step_settings import StepSettings
    from canoa.store.outlines import Outlines
    from canoa.store.postgres_link import Connection
    from canoa.store.routed_duties import Wanted
    from canoa.store.routed_port import Move, Moved

_STEP: Final = [column.name for column in steps.c]
_SELECT_STEPS: Final = (
    f"SELECT {', '.join(_STEP[:-1])} FROM steps WHERE task_id = ANY($1::text[]) ORDER BY task_id, step"
)
_SELECT_PLANS: Final = "SELECT id, doc FROM plans WHERE id = ANY($1::text[])"
_SELECT_MESSAGES: Final = "SELECT id, message FROM tasks WHERE id = ANY($1::text[])"
_SELECT_RESULTS: Final = "SELECT id, result FROM tasks WHERE id = ANY($1::text[])"
_SELECT_OUTPUTS: Final = """
SELECT task_id, step, output FROM steps
JOIN unnest($1::text[], $2::bigint[]) AS wanted (id, place) ON task_id = wanted.id AND step = wanted.place
"""
_INSERT_STEPS: Final = inserting(steps, _STEP)
_UPDATE_TASKS: Final = updating(tasks, ["id"], CHANGING)
_UPDATE_TASKS_AND_RESULTS: Final = updating(tasks, ["id"], [*CHANGING, "result"])
_UPDATE_STEPS: Final = updating(steps, ["task_id", "step"], _STEP[:-1])
_UPDATE_STEPS_AND_OUTPUTS: Final = updating(steps, ["task_id", "step"], _STEP)
_INSERT_OWED: Final = inserting(owed, ["key", "taken_until_ms", "publication"])
_SELECT_OWED: Final = "SELECT key FROM owed WHERE key = ANY($1::text[])"
_DELETE_OWED: Final = "DELETE FROM owed WHERE key = ANY($1::text[])"
_TAKE_OWED: Final = """
UPDATE owed SET taken_until_ms = $1 + $3 WHERE key IN (
  SELECT key FROM owed WHERE taken_until_ms <= $1 OR taken_until_ms > $4
  ORDER BY taken_until_ms, key LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING key, publication
"""


async def advance(
    connection: Connection,
    moves: Sequence[Move],
    *,
    outlines: Outlines,
    route: Route,
    settings: StepSettings,
) -> tuple[list[Moved], list[tuple[Outline, int]]]:
    """With the plans that were written: they are known once it is committed."""
    answers: list[Moved] = []
    plans: list[tuple[Outline, int]] = []
    for part in rounds(moves):
        ledger = await _load(connection, needs_of(part), outlines=outlines, route=route, settings=settings)
        ledger.give_unsent(await _unsent(connection, ledger.overdue(part)))
        ledger.take(part)
        await _build(connection, ledger)
        new_plans = outlines.to_write(ledger.plans.values())
        await _write(connection, ledger, new_plans)
        answers += ledger.answers()
        plans += new_plans
    return answers, plans


async def _load(
    connection: Connection,
    task_ids: dict[str, None],
    *,
    outlines: Outlines,
    route: Route,
    settings: StepSettings,
) -> RoutedLedger:
    rows = await connection.fetch(SELECT_TASKS, list(task_ids), []) if task_ids else []
    found = [TaskRecord(*row) for row in rows]
    plans = {task.id: task.plan for task in found if task.plan is not None}
    known = await _outlines(connection, outlines, plans.values())
    of_tasks: dict[str, tuple[Outline, list[StepRecord]]] = {
        id_: (known[plan], []) for id_, plan in plans.items() if plan in known
    }
    # In a statement of its own: it sees what those have written whose locks we waited for.
    for row in await connection.fetch(_SELECT_STEPS, list(of_tasks)) if of_tasks else []:
        of_tasks[row[0]][1].append(StepRecord(*row))
    return RoutedLedger(found, of_tasks, outlines, route=route, settings=settings)


async def _unsent(connection: Connection, keys: Sequence[str]) -> set[str]:
    return {key for (key,) in await connection.fetch(_SELECT_OWED, keys)} if keys else set()


async def _outlines(connection: Connection, outlines: Outlines, plan_ids: Iterable[str]) -> dict[str, Outline]:
    known = {plan_id: outlines.get(plan_id) for plan_id in plan_ids}
    found = {plan_id: outline for plan_id, outline in known.items() if outline is not None}
    missing = [plan_id for plan_id, outline in known.items() if outline is None]
    for plan_id, doc in await connection.fetch(_SELECT_PLANS, missing) if missing else []:
        found[plan_id] = outlines.add(doc)
    return found


async def _build(connection: Connection, ledger: RoutedLedger) -> None:
    is_left = True
    while is_left:
        await _give(connection, ledger, ledger.wanted())
        is_left = ledger.build()


async def _give(connection: Connection, ledger: RoutedLedger, wanted: Wanted) -> None:
    if not wanted:
        return
    messages = await connection.fetch(_SELECT_MESSAGES, list(wanted.messages)) if wanted.messages else []
    results = await connection.fetch(_SELECT_RESULTS, list(wanted.results)) if wanted.results else []
    outputs = await connection.fetch(_SELECT_OUTPUTS, *columns_of(wanted.outputs)) if wanted.outputs else []
    ledger.give(
        messages=dict(map(tuple, messages)),
        results=dict(map(tuple, results)),
        outputs={(task_id, step): output for task_id, step, output in outputs},
    )


async def _write(connection: Connection, ledger: RoutedLedger, plans: Sequence[tuple[Outline, int]]) -> None:
    writes = Writes()
    # All in one order, so that no two managers wait for each other.
    writes.add(UPSERT_PLANS, columns_of(sorted((outline.id, used_ms, outline.doc) for outline, used_ms in plans)))
    new = sorted(ledger.new_tasks.values(), key=attrgetter("id"))
    writes.add(INSERT_TASKS, columns_of(astuple(task)[: len(TASK)] for task in new), is_all_or_none=True)
    writes.add(_INSERT_STEPS, columns_of(map(astuple, ledger.new_steps)), is_all_or_none=True)
    writes.add(_UPDATE_TASKS, _fields(ledger.updated_tasks(with_result=False), CHANGING))
    writes.add(_UPDATE_TASKS_AND_RESULTS, _fields(ledger.updated_tasks(with_result=True), [*CHANGING, "result"]))
    writes.add(_UPDATE_STEPS, columns_of(astuple(step)[:-1] for step in ledger.updated_steps(with_output=False)))
    writes.add(_UPDATE_STEPS_AND_OUTPUTS, columns_of(map(astuple, ledger.updated_steps(with_output=True))))
    paid = sorted(ledger.paid.keys() - {key for key, _, _ in ledger.owed})  # what is owed again stays
    writes.add(_DELETE_OWED, [paid] if paid else [])
    writes.add(_INSERT_OWED, columns_of((key, now_ms + HOLD_OWED_MS, blob) for key, now_ms, blob in ledger.owed))
    await writes.send(connection)


def _fields(records: Sequence[TaskRecord], names: Sequence[str]) -> list[list[object]]:
    return [[getattr(record, name) for record in records] for name in names] if records else []


async def take_owed(connection: Connection, *, now_ms: int, limit: int, for_ms: int) -> list[Owed]:
    far_ms = now_ms + 2 * max(for_ms, HOLD_OWED_MS)
    taken = await connection.fetch(_TAKE_OWED, now_ms, limit, for_ms, far_ms)
    rows = [Owed(key=key, publication=unpack_publication(blob)) for key, blob in taken]
    return sorted(rows, key=attrgetter("key"))
