"""Moves on SQLite: remember or load the tasks they touch, let the ledger decide, write what came out.

`advance` does all of it inside a transaction that excludes other writers: what is remembered is true, unless another
connection has written since. `sqlite_ahead.py` decides first and writes later, with the same parts. Plain statements,
many rows each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import astuple

from canoa.execution.step_records import SENT, encode_story, steps_of
from canoa.execution.step_restoring import restored
from canoa.store.ledger import OPEN, TaskRecord
from canoa.store.packing import plain
from canoa.store.port import State
from canoa.store.routed_ledger import RoutedLedger, needs_of, rounds
from canoa.store.routed_memory import RoutedTask
from canoa.store.routed_unwritten import record_of
from canoa.store.schema import steps
from canoa.store.sqlite_batch import CHANGING, SELECTING_TASKS, TASK
from canoa.store.sqlite_catalogue import UPSERT_PLAN
from canoa.store.sqlite_owed import DELETE_OWED, INSERT_OWED, unsent
from canoa.store.sqlite_rows import Lookup, Rows, replacing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import Outline, StepRecord
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_duties import Wanted
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move
    from canoa.store.routed_unwritten import Send

    _Values: TypeAlias = Sequence[tuple[Any, ...]]

_STEP: Final = [column.name for column in steps.c][:-2]  # but for `story` and `output`, which are not taken as they are
_STEP_KEY: Final = ("task_id", "step")
_STEP_CHANGING: Final = [name for name in _STEP if name not in _STEP_KEY]
_SELECT_STEPS: Final = f"SELECT {', '.join(_STEP)}, story FROM steps WHERE task_id = ?"
_UPDATED_STEPS: Final = Rows("steps", [*_STEP, "story"], then=replacing(_STEP_KEY, [*_STEP_CHANGING, "story"]))
_OLD_STEPS: Final = Rows("steps", [*_STEP, "story"], then="ON CONFLICT DO NOTHING")
_WHOLE_STEPS: Final = Rows(
    "steps", [*_STEP, "story", "output"], then=replacing(_STEP_KEY, [*_STEP_CHANGING, "story", "output"])
)
_STORED_TASKS: Final = Lookup(SELECTING_TASKS, "id")
_NEW_TASKS: Final = Rows("tasks", TASK)
_ENDED_TASKS: Final = Rows("tasks", TASK, then=replacing(["id"], [*CHANGING, "result"]))
_UPDATE_TASK: Final = "UPDATE tasks SET standing = ?, reply_to = ? WHERE id = ?"
_RUNS: Final = "UPDATE tasks SET standing = 'running' WHERE id = ? AND standing = 'waiting'"
_OPEN_TASKS: Final = "SELECT id FROM tasks WHERE standing IN ('waiting', 'running') AND plan IS NOT NULL"


class Advanced(NamedTuple):
    """To be settled once it is committed; the ledgers have the answers. `version`: of the file, before. `sends` and
    `running`: what was left out before, and is written now."""

    ledgers: list[RoutedLedger]
    version: int
    sends: list[Send]
    running: list[str]

    def settle(self, notes: Notes) -> None:
        """Not before: what a rollback undoes, slips that were copied above all, is not known."""
        notes.data_version = self.version
        for ledger in self.ledgers:
            ledger.settle()
        notes.unwritten.wrote(self.sends, self.running)


def advance(
    connection: sqlite3.Connection,
    moves: Sequence[Move],
    *,
    paid: Sequence[str],
    notes: Notes,
    route: Route,
    settings: StepSettings,
    since_s: float = float("-inf"),
) -> Advanced:
    """`since_s`: what was left out until then is written, too."""
    notes.debts.pay(map(plain, paid))
    version = version_of(connection)
    if version != notes.data_version:
        notes.memory.clear()
        _drop_ended(connection, notes)
    parts = rounds(moves)
    ledgers = [_advance(connection, part, notes=notes, route=route, settings=settings) for part in parts]
    sends, running = notes.unwritten.sends_before(since_s), notes.unwritten.running_before(since_s)
    _write_left_out(connection, sends, running)
    return Advanced(ledgers, version, sends, running)


def _advance(
    connection: sqlite3.Connection, moves: Sequence[Move], *, notes: Notes, route: Route, settings: StepSettings
) -> RoutedLedger:
    known = tasks(connection, needs_of(moves), notes)
    ledger = RoutedLedger(known, notes, route=route, settings=settings)
    decide(connection, ledger, moves, notes)
    ledger.close()
    write(connection, rows_of(ledger))
    return ledger


def version_of(connection: sqlite3.Connection) -> int:
    """Of the file: another one as soon as another connection has written. Whoever notes it has copied all slips that
    were there (`sqlite_slips.py`), or there were none."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def decide(connection: sqlite3.Connection, ledger: RoutedLedger, moves: Sequence[Move], notes: Notes) -> None:
    """The ledger knows the tasks already."""
    if ledger.asks_for_unsent(moves):
        ledger.give_unsent(unsent(connection, notes.debts))
    ledger.take(moves)
    is_left = True
    while is_left:
        _give(connection, ledger, ledger.wanted())
        is_left = ledger.build()


def tasks(connection: sqlite3.Connection, task_ids: Iterable[str], notes: Notes) -> dict[str, RoutedTask]:
    found = notes.memory.take(task_ids)
    for row in _STORED_TASKS.rows(connection, [task_id for task_id in task_ids if task_id not in found]):
        task = TaskRecord(*row)
        found[task.id] = _loaded(connection, task, notes)
    return found


def _loaded(connection: sqlite3.Connection, task: TaskRecord, notes: Notes, *, now_ms: int | None = None) -> RoutedTask:
    outline = _outline(connection, notes, task.plan) if task.plan is not None else None
    if outline is None:
        return RoutedTask(task)
    rows = connection.execute(_SELECT_STEPS, (task.id,))
    known = RoutedTask(task, outline, notes.unwritten.over(steps_of(task.id, outline, rows)))
    if task.standing in OPEN:
        if notes.unwritten.runs(task.id):
            task.standing = State.RUNNING.value
        for step in restored(outline, known.steps, task.submitted_ms if now_ms is None else now_ms):
            known.steps[step.step] = step
    known.count_failures()
    return known


def _drop_ended(connection: sqlite3.Connection, notes: Notes) -> None:
    """Another program has written: nothing is out any more of what it has ended."""
    asked = notes.unwritten.task_ids()
    known = {task.id for row in _STORED_TASKS.rows(connection, asked) if (task := TaskRecord(*row)).standing in OPEN}
    notes.unwritten.drop_tasks(task_id for task_id in asked if task_id not in known)


def open_tasks(connection: sqlite3.Connection) -> list[str]:
    """Ids of the routed ones."""
    return [task_id for (task_id,) in connection.execute(_OPEN_TASKS)]


def restore(connection: sqlite3.Connection, task_ids: Sequence[str], *, notes: Notes, now_ms: int) -> int:
    """Write down what is out without a row, of these tasks; says how much that was."""
    notes.memory.clear()  # where it was known, it may be due at another time
    tasks = [TaskRecord(*row) for row in _STORED_TASKS.rows(connection, task_ids)]
    loaded = [_loaded(connection, task, notes, now_ms=now_ms) for task in tasks if task.standing in OPEN]
    out = [step for known in loaded for step in known.steps if step.state == SENT and not step.is_stored]
    _OLD_STEPS.write(connection, [*map(_known_step_values, out)])
    return len(out)


def _outline(connection: sqlite3.Connection, notes: Notes, plan_id: str) -> Outline | None:
    known = notes.outlines.get(plan_id)
    if known is not None:
        return known
    doc = _one(connection, "SELECT doc FROM plans WHERE id = ?", plan_id)
    return None if doc is None else notes.outlines.add(doc)


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


class RoutedRows(NamedTuple):
    """All that a ledger leaves to be written, as values that nobody changes any more."""

    plans: _Values
    new_tasks: _Values
    updated_tasks: _Values
    ended_tasks: _Values
    whole_steps: _Values  # with what they gave
    updated_steps: _Values
    spent: _Values
    bills: _Values
    old_steps: _Values = ()
    old_running: _Values = ()

    @property
    def says_something(self) -> bool:
        """About tasks or steps: what is only paid may fit on a disk that has no room for more."""
        return any(
            (self.new_tasks, self.updated_tasks, self.ended_tasks, self.whole_steps, self.updated_steps, self.old_steps)
        )


def rows_of(ledger: RoutedLedger, *, sends: Iterable[Send] = (), running: Iterable[str] = ()) -> RoutedRows:
    """Of a closed one. `sends` and `running`: what was not written until now. Most of it is empty most of the time."""
    updated = ledger.updated_tasks(with_result=False)
    return RoutedRows(
        plans=[(outline.id, used_ms, outline.doc) for outline, used_ms in ledger.plans] if ledger.plans else (),
        new_tasks=[*map(_task_values, ledger.new_tasks.values())],
        updated_tasks=[(task.standing, task.reply_to, task.id) for task in updated] if updated else (),
        ended_tasks=[*map(_task_values, ledger.updated_tasks(with_result=True))],
        whole_steps=[*map(_step_values, ledger.new_steps), *map(_step_values, ledger.ended_steps)],
        updated_steps=[*map(_known_step_values, ledger.updated_steps)],
        spent=[*zip(ledger.spent, strict=True)],
        bills=[bill.row() for bill in ledger.bills] if ledger.bills else (),
        old_steps=_sent_values(sends),
        old_running=[*zip(running, strict=True)],
    )


def write(connection: sqlite3.Connection, rows: RoutedRows) -> None:
    _many(connection, UPSERT_PLAN, rows.plans)
    _NEW_TASKS.write(connection, rows.new_tasks)
    _many(connection, _UPDATE_TASK, rows.updated_tasks)
    _ENDED_TASKS.write(connection, rows.ended_tasks)
    _WHOLE_STEPS.write(connection, rows.whole_steps)
    _UPDATED_STEPS.write(connection, rows.updated_steps)
    _OLD_STEPS.write(connection, rows.old_steps)  # after what is newer, and says more of some of them
    _many(connection, _RUNS, rows.old_running)
    _many(connection, DELETE_OWED, rows.spent)
    _many(connection, INSERT_OWED, rows.bills)


def _write_left_out(connection: sqlite3.Connection, sends: Iterable[Send], running: Iterable[str]) -> None:
    _OLD_STEPS.write(connection, _sent_values(sends))
    _many(connection, _RUNS, [*zip(running, strict=True)])


def _sent_values(sends: Iterable[Send]) -> list[tuple[Any, ...]]:
    return [*map(_known_step_values, map(record_of, sends))]


def _task_values(task: TaskRecord) -> tuple[Any, ...]:
    return astuple(task)[: len(TASK)]


def _step_values(step: StepRecord) -> tuple[Any, ...]:
    return (*astuple(step)[: len(_STEP)], encode_story(step.story), step.output)


def _known_step_values(step: StepRecord) -> tuple[Any, ...]:
    """But for what it gave, which has not changed."""
    return _step_values(step)[:-1]


def _many(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:  # with none, the driver still takes its time
        connection.executemany(statement, rows)
