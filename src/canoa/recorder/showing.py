"""From rows of the store to what people see."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final

from canoa.clock import as_time, as_time_or_none
from canoa.errors import SettingError, WrongUse
from canoa.execution.outcome import Outcome
from canoa.recorder.views import ActionView, LetterView, ResultView, TaskView
from canoa.store.port import Cursor
from canoa.vocabulary import TaskId
from canoa.wire import packing
from canoa.wire import result as result_wire
from canoa.wire.ids import MAX_ID_CHARS

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.broker.port import Message
    from canoa.store.port import Letter, TaskRow

_CURSOR: Final = re.compile(rf"([0-9]{{1,15}}):([^\x00-\x1f\x7f]{{1,{MAX_ID_CHARS}}})")
"""What `cursor` writes, and what every store can compare: no number beyond its integers, no NUL."""


def task(row: TaskRow) -> TaskView:
    return TaskView(
        id=row.id,
        action=row.action,
        state=row.state.value,
        outcome=None if row.outcome is None else row.outcome.value,
        submitted_at=as_time(row.submitted_ms),
        due_at=as_time_or_none(row.due_ms),
        started_at=as_time_or_none(row.started_ms),
        ended_at=as_time_or_none(row.ended_ms),
        attempts=row.attempts,
        node_id=row.node_id,
        error=row.error,
        progress=row.progress,
        progress_text=row.progress_text,
        run=row.run,
        took_s=_took_s(row),
    )


def _took_s(row: TaskRow) -> float | None:
    """Two clocks may tell that it ended before it was submitted: that is shown as nothing."""
    if row.ended_ms is None:
        return None
    return max(0, row.ended_ms - max(row.submitted_ms, row.due_ms or 0)) / 1000


def result(row: TaskRow, answer: Message | None, limit_bytes: int) -> ResultView:
    if answer is None:
        return ResultView(task=task(row))
    if row.outcome is Outcome.OK:
        body = packing.unpack(answer, limit_bytes)
        return ResultView(task=task(row), result=packing.ANY.decode(body, answer.content_type))
    try:
        what = result_wire.failure_from(answer)
    except WrongUse:
        return ResultView(task=task(row))
    return ResultView(task=task(row), error_type=what.error_type or None, traceback=what.traceback or None)


def letter(found: Letter) -> LetterView:
    return LetterView(
        task_id=found.task_id,
        action=found.action,
        reason=found.reason.value,
        error=found.error,
        traceback=found.traceback,
        attempts=found.attempts,
        node_id=found.node_id,
        origin=found.origin,
        dead_at=as_time(found.dead_ms),
    )


def action(known: Action[..., Any, Any], waiting: int | None, workers: int | None) -> ActionView:
    return ActionView(
        action=known.name,
        parameters=known.signature.describe(),
        runs=known.runs.value,
        timeout_s=known.policy.timeout_s,
        retry=known.policy.retries,
        waiting=waiting,
        workers=workers,
    )


def cursor(at_ms: int, task_id: str) -> str:
    return base64.urlsafe_b64encode(f"{at_ms}:{task_id}".encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        found = _CURSOR.fullmatch(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except (binascii.Error, ValueError):
        found = None
    if found is None:
        raise SettingError(f"cursor {text!r:.60} is none of ours; take `next` of the page before")
    return Cursor(int(found[1]), TaskId(found[2]))
