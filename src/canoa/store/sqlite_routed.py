"""Moves on SQLite: load the rows of the tasks they touch, let the ledger decide, write what came out.

Runs inside a transaction that excludes other writers. Plain statements, many rows each.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from canoa.execution.step_records import StepRecord
from canoa.store.ledger import TaskRecord
from canoa.store.packing import unpack_publication
from canoa.store.routed_ledger import RoutedLedger, needs_of, rounds
from canoa.store.routed_port import HOLD_OWED_MS, Owed
from canoa.store.schema import steps, tasks
from canoa.store.sqlite_batch import INSERT_TASK, SELECT_TASK, SMALL, TASK, inserting, updating
from canoa.store.sqlite_catalogue import UPSERT_PLAN

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import Outline
    from canoa.execution.step_settings import StepSettings
    from canoa.store.outlines import Outlines
    from canoa.store.routed_duties import Wanted
    from canoa.store.routed_port import Move, Moved

_STEP: Final = [column.name for column in steps.c]
_STEP_KEY: Final = ("task_id", "step")
_STEP_CHANGING: Final = [name for name in _STEP if name not in (*_STEP_KEY, "output")]
_SELECT_STEPS: Final = f"SELECT {', '.join(_STEP[:-1])} FROM steps WHERE task_id = ? ORDER BY step"
_INSERT_STEP: Final = inserting("INSERT", "steps", _STEP)
_TASK_CHANGING: Final = [name for name in SMALL if name not in ("id", "action", "submitted_ms", "plan")]
_UPDATE_TASK: Final = updating(tasks, ["id"], _TASK_CHANGING)
_UPDATE_TASK_AND_RESULT: Final = updating(tasks, ["id"], [*_TASK_CHANGING, "result"])
_UPDATE_STEP: Final = updating(steps, _STEP_KEY, _STEP_CHANGING)
_UPDATE_STEP_AND_OUTPUT: Final = updating(steps, _STEP_KEY, [*_STEP_CHANGING, "output"])
_INSERT_OWED: Final = inserting("INSERT OR IGNORE", "owed", ["key", "taken_until_ms", "publication"])
FREE_OWED: Final = """
SELECT key, publication, taken_until_ms FROM owed WHERE taken_until_ms <= ?
UNION ALL
SELECT key, publication, taken_until_ms FROM owed WHERE taken_until_ms > ?
ORDER BY taken_until_ms, key LIMIT ?
"""  # with OR it would read the whole table


def advance(
    connection: sqlite3.Connection,
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
        ledger = _load(connection, needs_of(part), outlines=outlines, route=route, settings=settings)
        ledger.give_unsent(_unsent(connection, ledger.overdue(part)))
        ledger.take(part)
        _build(connection, ledger)
        new_plans = outlines.to_write(ledger.plans.values())
        _write(connection, ledger, new_plans)
        answers += ledger.answers()
        plans += new_plans
    return answers, plans


def _load(
    connection: sqlite3.Connection,
    task_ids: dict[str, None],
    *,
    outlines: Outlines,
    route: Route,
    settings: StepSettings,
) -> RoutedLedger:
    # Row by row: as fast as one statement over a list, and exact for whatever an id may hold.
    found: list[TaskRecord] = []
    for task_id in task_ids:
        found += [TaskRecord(*row) for row in connection.execute(SELECT_TASK, (task_id,))]
    of_tasks: dict[str, tuple[Outline, list[StepRecord]]] = {}
    for task in found:
        outline = _outline(connection, outlines, task.plan) if task.plan is not None else None
        if outline is not None:
            rows = connection.execute(_SELECT_STEPS, (task.id,))
            of_tasks[task.id] = outline, [StepRecord(*row) for row in rows]
    return RoutedLedger(found, of_tasks, outlines, route=route, settings=settings)


def _unsent(connection: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    select = "SELECT key FROM owed WHERE key = ?"
    return {key for key in keys if connection.execute(select, (key,)).fetchone() is not None}


def _outline(connection: sqlite3.Connection, outlines: Outlines, plan_id: str) -> Outline | None:
    known = outlines.get(plan_id)
    if known is not None:
        return known
    doc = _one(connection, "SELECT doc FROM plans WHERE id = ?", plan_id)
    return None if doc is None else outlines.add(doc)


def _build(connection: sqlite3.Connection, ledger: RoutedLedger) -> None:
    is_left = True
    while is_left:
        _give(connection, ledger, ledger.wanted())
        is_left = ledger.build()


def _give(connection: sqlite3.Connection, ledger: RoutedLedger, wanted: Wanted) -> None:
    if not wanted:
        return
    messages = {id_: _one(connection, "SELECT message FROM tasks WHERE id = ?", id_) for id_ in wanted.messages}
    results = {id_: _one(connection, "SELECT result FROM tasks WHERE id = ?", id_) for id_ in wanted.results}
    select = "SELECT output FROM steps WHERE task_id = ? AND step = ?"
    outputs = {key: _one(connection, select, *key) for key in wanted.outputs}
    ledger.give(messages=messages, results=results, outputs=outputs)


def _one(connection: sqlite3.Connection, select: str, *key: object) -> bytes | None:
    found = connection.execute(select, key).fetchone()
    return None if found is None else found[0]


def _write(connection: sqlite3.Connection, ledger: RoutedLedger, plans: Sequence[tuple[Outline, int]]) -> None:
    many = connection.executemany
    many(UPSERT_PLAN, [(outline.id, used_ms, outline.doc) for outline, used_ms in plans])
    many(INSERT_TASK, [astuple(task)[: len(TASK)] for task in ledger.new_tasks.values()])
    many(_INSERT_STEP, [astuple(step) for step in ledger.new_steps])
    many(_UPDATE_TASK, [astuple(task)[: len(SMALL)] for task in ledger.updated_tasks(with_result=False)])
    many(_UPDATE_TASK_AND_RESULT, [astuple(task)[: len(TASK)] for task in ledger.updated_tasks(with_result=True)])
    many(_UPDATE_STEP, [astuple(step)[:-1] for step in ledger.updated_steps(with_output=False)])
    many(_UPDATE_STEP_AND_OUTPUT, [astuple(step) for step in ledger.updated_steps(with_output=True)])
    many("DELETE FROM owed WHERE key = ?", [(key,) for key in ledger.paid])
    many(_INSERT_OWED, [(key, now_ms + HOLD_OWED_MS, blob) for key, now_ms, blob in ledger.owed])


def take_owed(connection: sqlite3.Connection, *, now_ms: int, limit: int, for_ms: int) -> list[Owed]:
    free = connection.execute(FREE_OWED, (now_ms, now_ms + 2 * max(for_ms, HOLD_OWED_MS), limit)).fetchall()
    connection.executemany(
        "UPDATE owed SET taken_until_ms = ? WHERE key = ?", [(now_ms + for_ms, key) for key, _, _ in free]
    )
    taken = [Owed(key=key, publication=unpack_publication(blob)) for key, blob, _ in free]
    return sorted(taken, key=attrgetter("key"))
