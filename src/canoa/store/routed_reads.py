"""The managers' questions, as SQL for either database, and their rows as the port's words."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec
import sqlalchemy as sa

from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan
from canoa.execution.step_moves import StepState
from canoa.execution.step_records import SENT, outline_of
from canoa.execution.step_rules import LOOK_MS
from canoa.store.packing import plain
from canoa.store.reads import Asked, asked, compiled
from canoa.store.routed_port import BreakerRow, Due, NodeRow, StepRow
from canoa.store.schema import breakers, nodes, plan_names, plans, steps, tasks
from canoa.vocabulary import NodeId, TaskId
from canoa.wire.sapparchi import request_id

if TYPE_CHECKING:
    from canoa.execution.step_records import Outline, StepRecord
    from canoa.store.reads import Query, Row

_FAR: Final = 2 * LOOK_MS
_DUE_COLUMNS: Final = (steps.c.task_id, steps.c.step, steps.c.due_ms, steps.c.state, steps.c.attempt, steps.c.send)
# As the indexes spell it, so that they are used.
_IS_SENT: Final = steps.c.state == sa.literal_column(f"'{SENT}'")
_IS_TIMED: Final = steps.c.due_ms.is_not(None)

_decode_plan = msgspec.json.Decoder(Plan).decode
_decode_node = msgspec.json.Decoder(NodeRow).decode


def steps_of(dialect: str, task_id: TaskId) -> Asked:
    return asked(_steps_query(dialect), task_id=plain(task_id))


def output(dialect: str, task_id: TaskId, step: int) -> Asked:
    return asked(_output_query(dialect), task_id=plain(task_id), step=step)


def plan_of(dialect: str, task_id: TaskId) -> Asked:
    return asked(_plan_of_query(dialect), task_id=plain(task_id))


def due(dialect: str, *, now_ms: int, limit: int) -> Asked:
    return asked(_due_query(dialect), now_ms=now_ms, far_ms=now_ms + _FAR, limit=limit)


def sent(dialect: str, node_id: NodeId, *, limit: int) -> Asked:
    return asked(_sent_query(dialect), node_id=plain(node_id), limit=limit)


def queued(dialect: str) -> Asked:
    return asked(_queued_query(dialect))


def open_steps(dialect: str, *, limit: int, after: Due | None) -> Asked:
    place = {} if after is None else {"task_id": plain(after.task_id), "step": after.step}
    return asked(_open_query(dialect, is_first=after is None), limit=limit, **place)


def named_plan(dialect: str, name: str) -> Asked:
    return asked(_plan_query(dialect), name=plain(name))


def named_plans(dialect: str) -> Asked:
    return asked(_plans_query(dialect))


def names_of_plans(dialect: str, *, limit: int) -> Asked:
    return asked(_plan_names_query(dialect), limit=limit)


def nodes_since(dialect: str, version: int) -> Asked:
    return asked(_nodes_query(dialect), version=version)


def all_breakers(dialect: str) -> Asked:
    return asked(_breakers_query(dialect))


# --- Rows in the port's words -----------------------------------------------------------------------


def step_row(record: StepRecord, outline: Outline) -> StepRow:
    planned = outline.steps[record.step]
    own = outline.own_place(record.step)
    return StepRow(
        task_id=TaskId(record.task_id),
        step=record.step,
        name=planned.name,
        action=planned.action,
        state=StepState(record.state),
        outcome=None if record.outcome is None else Outcome(record.outcome),
        ready_ms=record.ready_ms,
        due_ms=record.due_ms,
        ended_ms=record.ended_ms,
        error=record.error,
        attempts=tuple(record.story),
        compensates=None if own == record.step else outline.steps[own].name,
    )


def due_of(row: Row) -> Due:
    task_id, step, due_ms, state, attempt, send = row
    is_out = state == SENT
    return Due(TaskId(task_id), step, due_ms, attempt if is_out else 0, send if is_out else 0)


def request_of(row: Row) -> str:
    return request_id(*row)


def outline_from(row: Row) -> Outline:
    return outline_of(row[0])


def plan_from(row: Row) -> Plan:
    return _decode_plan(row[0])


def node_row(row: Row) -> NodeRow:
    _, version, seen_ms, doc = row
    return msgspec.structs.replace(_decode_node(doc), version=version, seen_ms=seen_ms)


def breaker_row(row: Row) -> BreakerRow:
    node_id, action, failures, down_until_ms, trial_ms, changed_ms = row
    return BreakerRow(
        node_id=NodeId(node_id),
        action=action,
        failures=failures,
        down_until_ms=down_until_ms,
        trial_ms=trial_ms,
        changed_ms=changed_ms,
    )


# --- The queries, each built once -------------------------------------------------------------------


@cache
def _steps_query(dialect: str) -> Query:
    columns = tuple(steps.c)[:-1]  # without the output
    query = sa.select(*columns).where(steps.c.task_id == sa.bindparam("task_id")).order_by(steps.c.step)
    return compiled(dialect, query)


@cache
def _output_query(dialect: str) -> Query:
    is_it = (steps.c.task_id == sa.bindparam("task_id")) & (steps.c.step == sa.bindparam("step"))
    return compiled(dialect, sa.select(steps.c.output).where(is_it))


@cache
def _plan_of_query(dialect: str) -> Query:
    query = sa.select(plans.c.doc).join_from(tasks, plans, tasks.c.plan == plans.c.id)
    return compiled(dialect, query.where(tasks.c.id == sa.bindparam("task_id")))


@cache
def _due_query(dialect: str) -> Query:
    """Two ranges of the index, and nothing of the many timers between them."""
    is_due = steps.c.due_ms <= sa.bindparam("now_ms", type_=sa.BigInteger)
    is_far = steps.c.due_ms > sa.bindparam("far_ms", type_=sa.BigInteger)
    timed = sa.select(*_DUE_COLUMNS).where(_IS_TIMED).order_by(steps.c.due_ms).limit(_limit())
    merged = sa.union_all(*(sa.select(timed.where(part).subquery()) for part in (is_due, is_far))).subquery()
    return compiled(dialect, sa.select(merged).order_by(merged.c.due_ms).limit(_limit()))


@cache
def _sent_query(dialect: str) -> Query:
    columns = (steps.c.task_id, steps.c.step, steps.c.attempt, steps.c.send)
    query = sa.select(*columns).where(_IS_SENT, steps.c.node_id == sa.bindparam("node_id"))
    return compiled(dialect, query.order_by(steps.c.ready_ms, steps.c.task_id, steps.c.step).limit(_limit()))


@cache
def _queued_query(dialect: str) -> Query:
    query = sa.select(steps.c.node_id, sa.func.count()).where(_IS_SENT).group_by(steps.c.node_id)
    return compiled(dialect, query)


@cache
def _open_query(dialect: str, *, is_first: bool) -> Query:
    query = sa.select(*_DUE_COLUMNS).where(_IS_TIMED)
    if not is_first:
        place = sa.tuple_(
            sa.bindparam("task_id", type_=steps.c.task_id.type), sa.bindparam("step", type_=sa.BigInteger)
        )
        query = query.where(sa.tuple_(steps.c.task_id, steps.c.step) > place)
    return compiled(dialect, query.order_by(steps.c.task_id, steps.c.step).limit(_limit()))


@cache
def _plan_query(dialect: str) -> Query:
    query = sa.select(plans.c.doc).join_from(plan_names, plans, plan_names.c.plan == plans.c.id)
    return compiled(dialect, query.where(plan_names.c.name == sa.bindparam("name")))


@cache
def _plans_query(dialect: str) -> Query:
    query = sa.select(plans.c.doc).join_from(plan_names, plans, plan_names.c.plan == plans.c.id)
    return compiled(dialect, query.order_by(plan_names.c.name))


@cache
def _plan_names_query(dialect: str) -> Query:
    query = sa.select(plan_names.c.name).order_by(plan_names.c.name)
    return compiled(dialect, query.limit(sa.bindparam("limit", type_=sa.BigInteger)))


@cache
def _nodes_query(dialect: str) -> Query:
    changed = nodes.c.version > sa.bindparam("version", type_=sa.BigInteger)
    return compiled(dialect, sa.select(*nodes.c).where(changed).order_by(nodes.c.version))


@cache
def _breakers_query(dialect: str) -> Query:
    return compiled(dialect, sa.select(*breakers.c).order_by(breakers.c.node_id, breakers.c.action))


def _limit() -> sa.BindParameter[int]:
    return sa.bindparam("limit", type_=sa.BigInteger)
