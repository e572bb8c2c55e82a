"""The questions a store answers, as SQL for either database, and its rows as the port's words.

Listings are merged from index ranges, one per standing that is wanted: each gives its first `limit` ids without
reading a row, so a page costs the same among a hundred tasks and a million, whatever it is filtered by. Also one that
wants any: an index for that alone would cost every task two more writes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.dialects.sqlite import pysqlite

from canoa.execution.outcome import Outcome
from canoa.store.ledger import OPEN
from canoa.store.packing import plain, plain_or_none, unpack_message
from canoa.store.port import Lease, Letter, NewTask, State, TaskFilter, TaskRow
from canoa.store.schema import leases, letters, outbox, tasks
from canoa.vocabulary import ActionName, NodeId, TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record

    from canoa.store.port import Cursor

DIALECTS: Final[Mapping[str, sa.Dialect]] = {
    "sqlite": pysqlite.dialect(paramstyle="qmark"),
    "postgresql": asyncpg.dialect(),  # type: ignore[no-untyped-call]
}
_STATES: Final = tuple(sorted(OPEN))
_OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)

TASK_COLUMNS: Final = tuple(tasks.c)[:-2]  # without the blobs
LETTER_COLUMNS: Final = tuple(letters.c)[:-1]

Row: TypeAlias = "Sequence[Any] | Record"
_Column: TypeAlias = "sa.ColumnElement[Any]"


class Query(msgspec.Struct, frozen=True):
    """SQL with positional parameters, and which value goes where."""

    sql: str
    names: tuple[str, ...]
    constants: dict[str, object]


class Asked(msgspec.Struct, frozen=True):
    """A query with its values: what a driver needs."""

    sql: str
    arguments: list[object]


def task(dialect: str, task_id: TaskId) -> Asked:
    return asked(_task_query(dialect), id=plain(task_id))


def result(dialect: str, task_id: TaskId) -> Asked:
    return asked(_result_query(dialect), id=plain(task_id))


def task_page(dialect: str, wanted: TaskFilter, *, limit: int, before: Cursor | None) -> Asked | None:
    """None: the filter contradicts itself, so there is nothing to ask."""
    standings = _standings(wanted)
    if not standings:
        return None
    query = _page_query(dialect, standings, by_action=wanted.action is not None, is_first=before is None)
    return asked(query, action=plain_or_none(wanted.action), limit=limit, **_place(before))


def unfinished(dialect: str, *, limit: int, after: Cursor | None, without_outbox: bool) -> Asked:
    query = _unfinished_query(dialect, is_first=after is None, without_outbox=without_outbox)
    return asked(query, limit=limit, **_place(after))


def holder(dialect: str, name: str) -> Asked:
    return asked(_holder_query(dialect), name=plain(name))


def letter(dialect: str, task_id: TaskId) -> Asked:
    return asked(_letter_query(dialect), id=plain(task_id))


def letter_page(dialect: str, *, limit: int, action: ActionName | None, before: Cursor | None) -> Asked:
    query = _letters_query(dialect, by_action=action is not None, is_first=before is None)
    return asked(query, action=plain_or_none(action), limit=limit, **_place(before))


# --- Rows in the port's words -----------------------------------------------------------------------


def task_row(row: Row) -> TaskRow:
    """From the columns of `TASK_COLUMNS`."""
    standing = row[2]
    return TaskRow(
        id=TaskId(row[0]),
        action=ActionName(row[1]),
        state=State(standing) if standing in OPEN else State.ENDED,
        outcome=None if standing in OPEN else Outcome(standing),
        submitted_ms=row[3],
        due_ms=row[4],
        started_ms=row[5],
        ended_ms=row[6],
        attempts=row[7],
        node_id=row[8],
        error=row[9],
        progress=row[10],
        progress_text=row[11],
        run=row[12],
    )


def new_task(row: Row) -> NewTask:
    return NewTask(
        id=TaskId(row[0]),
        action=ActionName(row[1]),
        submitted_ms=row[2],
        due_ms=row[3],
        reply_to=row[4] or None,
        message=unpack_message(row[5]),
    )


def letter_of(row: Row) -> Letter:
    """From the columns of `LETTER_COLUMNS`."""
    return Letter(
        task_id=TaskId(row[0]),
        action=ActionName(row[1]),
        reason=Outcome(row[2]),
        error=row[3],
        traceback=row[4],
        attempts=row[5],
        node_id=NodeId(row[6]) if row[6] is not None else None,
        origin=row[7],
        dead_ms=row[8],
        redriven_ms=row[9],
    )


def lease_of(row: Row) -> Lease:
    return Lease(name=row[0], owner=row[1], epoch=row[2], expires_ms=row[3])


# --- The queries, each built once -------------------------------------------------------------------


@cache
def _task_query(dialect: str) -> Query:
    return compiled(dialect, sa.select(*TASK_COLUMNS).where(tasks.c.id == sa.bindparam("id")))


@cache
def _result_query(dialect: str) -> Query:
    return compiled(dialect, sa.select(tasks.c.result).where(tasks.c.id == sa.bindparam("id")))


@cache
def _letter_query(dialect: str) -> Query:
    return compiled(dialect, sa.select(*LETTER_COLUMNS).where(letters.c.task_id == sa.bindparam("id")))


@cache
def _page_query(dialect: str, standings: tuple[str, ...], *, by_action: bool, is_first: bool) -> Query:
    conditions = [tasks.c.action == sa.bindparam("action")] if by_action else []
    chosen = _merged(standings, conditions, newest_first=True, is_first=is_first)
    query = sa.select(*TASK_COLUMNS).where(tasks.c.id.in_(chosen))
    return compiled(dialect, query.order_by(*_order(tasks.c.submitted_ms, tasks.c.id, newest_first=True)))


@cache
def _unfinished_query(dialect: str, *, is_first: bool, without_outbox: bool) -> Query:
    conditions = [tasks.c.plan.is_(None)]  # the others are their managers' business
    if without_outbox:
        conditions.append(tasks.c.id.not_in(sa.select(outbox.c.task_id)))
    chosen = _merged(_STATES, conditions, newest_first=False, is_first=is_first)
    columns = (tasks.c.id, tasks.c.action, tasks.c.submitted_ms, tasks.c.due_ms, tasks.c.reply_to, tasks.c.message)
    query = sa.select(*columns).where(tasks.c.id.in_(chosen))
    return compiled(dialect, query.order_by(*_order(tasks.c.submitted_ms, tasks.c.id, newest_first=False)))


@cache
def _holder_query(dialect: str) -> Query:
    return compiled(dialect, sa.select(*leases.c).where(leases.c.name == sa.bindparam("name")))


@cache
def _letters_query(dialect: str, *, by_action: bool, is_first: bool) -> Query:
    query = sa.select(*LETTER_COLUMNS).where(letters.c.redriven_ms.is_(None))
    if by_action:
        query = query.where(letters.c.action == sa.bindparam("action"))
    if not is_first:
        query = query.where(_behind(letters.c.dead_ms, letters.c.task_id, newest_first=True))
    order = _order(letters.c.dead_ms, letters.c.task_id, newest_first=True)
    return compiled(dialect, query.order_by(*order).limit(_limit()))


def _merged(
    standings: tuple[str, ...], conditions: Sequence[_Column], *, newest_first: bool, is_first: bool
) -> sa.Select[Any]:
    """The ids of the first `limit` tasks among those of these standings, behind the cursor."""
    if not is_first:
        conditions = [*conditions, _behind(tasks.c.submitted_ms, tasks.c.id, newest_first=newest_first)]
    one_range = (
        sa.select(tasks.c.submitted_ms, tasks.c.id)
        .where(*conditions)
        .order_by(*_order(tasks.c.submitted_ms, tasks.c.id, newest_first=newest_first))
        .limit(_limit())
    )
    ranges = [
        one_range.where(tasks.c.standing == sa.literal_column(f"'{standing}'")).subquery() for standing in standings
    ]
    merged = sa.union_all(*(sa.select(part) for part in ranges)).subquery()
    order = _order(merged.c.submitted_ms, merged.c.id, newest_first=newest_first)
    return sa.select(merged.c.id).order_by(*order).limit(_limit())


def _order(at: _Column, id_: _Column, *, newest_first: bool) -> tuple[_Column, _Column]:
    return (at.desc(), id_.desc()) if newest_first else (at, id_)


def _behind(at: _Column, id_: _Column, *, newest_first: bool) -> _Column:
    place = sa.tuple_(at, id_)
    cursor = sa.tuple_(sa.bindparam("at_ms", type_=at.type), sa.bindparam("id", type_=id_.type))
    return place < cursor if newest_first else place > cursor


def _limit() -> sa.BindParameter[int]:
    return sa.bindparam("limit", type_=sa.BigInteger)


# --- Putting them together --------------------------------------------------------------------------


def _standings(wanted: TaskFilter) -> tuple[str, ...]:
    """An outcome says more than a state, and contradicts those that are not the end."""
    if wanted.outcome is not None:
        return (wanted.outcome.value,) if wanted.state in (None, State.ENDED) else ()
    if wanted.state is None:
        return _STATES + _OUTCOMES
    return _OUTCOMES if wanted.state is State.ENDED else (wanted.state.value,)


def _place(cursor: Cursor | None) -> dict[str, object]:
    return {} if cursor is None else {"at_ms": cursor.at_ms, "id": plain(cursor.id)}


def compiled(dialect: str, query: sa.Select[Any]) -> Query:
    """For the driver that the dialect is named after."""
    done = query.compile(dialect=DIALECTS[dialect])
    return Query(str(done), tuple(done.positiontup or ()), done.params)


def asked(query: Query, **values: object) -> Asked:
    """With a value for each of its parameters."""
    values = query.constants | values
    return Asked(query.sql, [values[name] for name in query.names])
