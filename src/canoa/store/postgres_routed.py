"""Moves on PostgreSQL: remember or load the tasks they touch, let the ledger decide, write what came out.

Where all is remembered, one statement writes it, provided that every task's row is still the one we know. Otherwise
the rows are locked and loaded first. A task's row guards its steps: whoever moves one of them writes it anew, and so
changes its version (`xmin`). Whole columns travel as arrays: one statement for many rows.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from canoa.clock import now_ms
from canoa.execution.step_records import encode_story, steps_of
from canoa.store.ledger import TaskRecord
from canoa.store.packing import plain
from canoa.store.postgres_batch import CHANGING, INSERT_TASKS, SMALL, TASK, arrays, columns_of, inserting, updating
from canoa.store.postgres_catalogue import UPSERT_PLANS
from canoa.store.postgres_link import MetAnother
from canoa.store.postgres_owed import DELETE_OWED, INSERT_OWED, unsent
from canoa.store.postgres_writes import Writes
from canoa.store.routed_ledger import RoutedLedger, needs_of, rounds
from canoa.store.routed_memory import RoutedTask
from canoa.store.same_choices import SameChoices
from canoa.store.schema import steps, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import Outline, StepRecord
    from canoa.execution.step_settings import StepSettings
    from canoa.store.postgres_link import Connection, Fetches, PostgresLink
    from canoa.store.routed_duties import Wanted
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move, Moved

    NewLedger: TypeAlias = Callable[[Mapping[str, RoutedTask]], RoutedLedger]

LOCK_AFTER_MEETING: Final = 20
"""Groups that lock first, once another manager was found to have moved the same task: he will again. More spare
statements in vain where managers share the steps of tasks; fewer are quicker where they seldom do."""


def _updating(columns: Sequence[str]) -> str:
    """Of tasks whose rows are the ones we know."""
    cells = ", ".join(f"{name} = new.{name}" for name in columns) or "run = old.run"
    given = arrays(tasks, ["id", *columns], version="xid")
    return f"UPDATE tasks AS old SET {cells} FROM {given} WHERE old.id = new.id AND old.xmin = new.version"


_STEP: Final = [column.name for column in steps.c][:-2]  # but for `story` and `output`, which are not taken as they are
_STEP_KEY: Final = ["task_id", "step"]
_ENDING: Final = [*CHANGING[1:], "result"]
_SELECT_TASKS: Final = (
    f"SELECT xmin, {', '.join(SMALL)}, NULL, NULL, message IS NOT NULL "
    "FROM tasks WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE"
)
_SELECT_STEPS: Final = f"SELECT {', '.join(_STEP)}, story FROM steps WHERE task_id = ANY($1::text[])"
_SELECT_PLANS: Final = "SELECT id, doc FROM plans WHERE id = ANY($1::text[])"
_SELECT_MESSAGES: Final = "SELECT id, message FROM tasks WHERE id = ANY($1::text[])"
_SELECT_RESULTS: Final = "SELECT id, result FROM tasks WHERE id = ANY($1::text[])"
_SELECT_OUTPUTS: Final = """
SELECT task_id, step, output FROM steps
JOIN unnest($1::text[], $2::bigint[]) AS wanted (id, place) ON task_id = wanted.id AND step = wanted.place
"""
_INSERT_STEPS: Final = inserting(steps, [*_STEP, "story", "output"])
_UPDATE_STEPS: Final = updating(steps, _STEP_KEY, [*_STEP, "story"])
_END_STEPS: Final = updating(steps, _STEP_KEY, [*_STEP, "story", "output"])
_UPDATE_TASKS: Final = _updating(["standing", "reply_to"])
_END_TASKS: Final = _updating(_ENDING)
_KEEP_TASKS: Final = _updating([])  # only their version changes

_updated_task = attrgetter("id", "standing", "reply_to")
_of_ended: Callable[[tuple[Any, ...]], tuple[Any, ...]] = itemgetter(*(TASK.index(name) for name in ("id", *_ENDING)))


async def advance(
    link: PostgresLink,
    moves: Sequence[Move],
    *,
    paid: Sequence[str],
    notes: Notes,
    route: Route,
    settings: StepSettings,
) -> list[Moved]:
    notes.debts.pay(map(plain, paid))
    choices = SameChoices(route)
    try:
        moved = await _advance(link, moves, notes=notes, choices=choices, settings=settings)
        choices.stand()
    finally:
        choices.take_back_rest(now_ms())
    return moved


async def _advance(
    link: PostgresLink, moves: Sequence[Move], *, notes: Notes, choices: SameChoices, settings: StepSettings
) -> list[Moved]:
    new_ledger = partial(RoutedLedger, notes=notes, route=choices, settings=settings)
    if notes.locks_left:
        notes.locks_left -= 1
    elif (ledger := _from_memory(moves, notes, new_ledger)) is not None:
        try:
            ledger.settle(await link.write_at_once(partial(_write, ledger)))
        except MetAnother:
            notes.locks_left = LOCK_AFTER_MEETING
        else:
            return ledger.answers()
    advance_locked = partial(_advance_locked, moves=moves, notes=notes, new_ledger=new_ledger, choices=choices)
    done = await link.write(advance_locked)
    for ledger, version in done:
        ledger.settle(version)
    return [moved for ledger, _ in done for moved in ledger.answers()]


def _from_memory(moves: Sequence[Move], notes: Notes, new_ledger: NewLedger) -> RoutedLedger | None:
    """What the moves do, where nothing must be read for it. None: something must."""
    needs = needs_of(moves)
    if len([*rounds(moves)]) > 1 or any(
        not is_new and task_id not in notes.memory for task_id, is_new in needs.items()
    ):
        return None
    ledger = new_ledger(notes.memory.take(needs))
    if _is_enough(ledger, moves):
        return ledger
    notes.memory.keep(ledger.untouched())
    return None


def _is_enough(ledger: RoutedLedger, moves: Sequence[Move]) -> bool:
    """Whether the ledger could take the moves with what it had."""
    if ledger.asks_for_unsent(moves):
        return False
    ledger.take(moves)
    is_left = True
    while is_left:
        if ledger.wanted():
            return False
        is_left = ledger.build()
    ledger.close()
    return ledger.is_all_written


async def _advance_locked(
    connection: Connection, moves: Sequence[Move], *, notes: Notes, new_ledger: NewLedger, choices: SameChoices
) -> list[tuple[RoutedLedger, int]]:
    """With the version of what each of them wrote."""
    choices.begin_again()
    done: list[tuple[RoutedLedger, int]] = []
    for part in rounds(moves):
        ledger = new_ledger(await _load(connection, needs_of(part), notes))
        if ledger.asks_for_unsent(part):
            ledger.give_unsent(await unsent(connection, notes.debts))
        ledger.take(part)
        is_left = True
        while is_left:
            await _give(connection, ledger, ledger.wanted())
            is_left = ledger.build()
        ledger.close()
        done.append((ledger, await _write(ledger, connection)))
    return done


async def _load(connection: Connection, task_ids: Iterable[str], notes: Notes) -> dict[str, RoutedTask]:
    remembered = notes.memory.take(task_ids)
    rows = await connection.fetch(_SELECT_TASKS, [*task_ids]) if task_ids else []
    found = [RoutedTask(TaskRecord(*row[1:]), version=row[0]) for row in rows]
    known = {
        each.task.id: remembered[each.task.id]
        for each in found
        if each.task.id in remembered and remembered[each.task.id].version == each.version
    }
    unknown = [each for each in found if each.task.id not in known]
    await _load_steps(connection, unknown, notes)
    return known | {each.task.id: each for each in unknown}


async def _load_steps(connection: Connection, of_tasks: Sequence[RoutedTask], notes: Notes) -> None:
    plans = {each.task.plan for each in of_tasks if each.task.plan is not None}
    outlines = await _outlines(connection, notes, plans) if plans else {}
    rows: dict[str, list[Any]] = {each.task.id: [] for each in of_tasks if each.task.plan in outlines}
    # In a statement of its own: it sees what those have written whose locks we waited for.
    for row in await connection.fetch(_SELECT_STEPS, [*rows]) if rows else []:
        rows[row[0]].append(row)
    for each in of_tasks:
        if each.task.plan in outlines:
            each.outline = outlines[each.task.plan]
            each.steps = steps_of(each.task.id, each.outline, rows[each.task.id])
            each.count_failures()


async def _outlines(connection: Connection, notes: Notes, plan_ids: Iterable[str]) -> dict[str | None, Outline]:
    known = {plan_id: notes.outlines.get(plan_id) for plan_id in plan_ids}
    found: dict[str | None, Outline] = {plan_id: outline for plan_id, outline in known.items() if outline is not None}
    missing = [plan_id for plan_id, outline in known.items() if outline is None]
    for plan_id, doc in await connection.fetch(_SELECT_PLANS, missing) if missing else []:
        found[plan_id] = notes.outlines.add(doc)
    return found


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


async def _write(ledger: RoutedLedger, connection: Fetches) -> int:
    """The version of what was written."""
    # Each kind in one order, so that two managers seldom wait for each other. Where they do, PostgreSQL stops one of
    # them, and it tries again.
    new = sorted(ledger.new_tasks.values(), key=attrgetter("id"))
    ended = _known(ledger, _ended_task, ledger.updated_tasks(with_result=True))
    updated = _known(ledger, _updated_task, ledger.updated_tasks(with_result=False))
    writes = Writes()
    writes.add(
        UPSERT_PLANS, columns_of(sorted((outline.id, used_ms, outline.doc) for outline, used_ms in ledger.plans))
    )
    writes.add(INSERT_TASKS, columns_of(map(_new_task, new)), is_all_or_none=True)
    writes.add(_INSERT_STEPS, columns_of(map(_step_values, ledger.new_steps)), is_all_or_none=True)
    writes.add(_UPDATE_TASKS, updated, is_all_or_none=True)
    writes.add(_END_TASKS, ended, is_all_or_none=True)
    writes.add(_KEEP_TASKS, columns_of(sorted(ledger.kept_tasks())), is_all_or_none=True)
    writes.add(_UPDATE_STEPS, columns_of(_step_values(each)[:-1] for each in ledger.updated_steps))
    writes.add(_END_STEPS, columns_of(map(_step_values, ledger.ended_steps)))
    writes.add(DELETE_OWED, [ledger.spent] if ledger.spent else [])
    writes.add(INSERT_OWED, columns_of(bill.row() for bill in ledger.bills), is_all_or_none=True)
    return await writes.send(connection)


def _known(
    ledger: RoutedLedger, values: Callable[[TaskRecord], tuple[Any, ...]], records: Iterable[TaskRecord]
) -> list[list[Any]]:
    """With the versions that their rows must have."""
    return columns_of(sorted((*values(task), ledger.version(task.id)) for task in records))


# Records have the columns' order, and `astuple` takes a third of the time of an `attrgetter` for as many.


def _new_task(task: TaskRecord) -> tuple[Any, ...]:
    return astuple(task)[: len(TASK)]


def _ended_task(task: TaskRecord) -> tuple[Any, ...]:
    return _of_ended(astuple(task))


def _step_values(step: StepRecord) -> tuple[Any, ...]:
    return (*astuple(step)[: len(_STEP)], encode_story(step.story), step.output)
