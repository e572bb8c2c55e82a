"""The messages that a routed task leaves to be sent, from its rows: an attempt to its node, the end to everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.errors import PayloadTooLarge
from canoa.execution import compensation
from canoa.execution.outcome import OK, Outcome
from canoa.execution.plan_inputs import compensation_input, input_of, task_output
from canoa.execution.plan_result import StepReport, consolidated
from canoa.execution.step_records import SKIPPED
from canoa.store.packing import plain
from canoa.store.port import End
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire import result, routed
from canoa.wire import task as task_wire
from canoa.wire.codec import ContentType
from canoa.wire.sapparchi import request_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.broker.port import HeaderValue, Message, Publication
    from canoa.execution.step_moves import AttemptRow, StepEnd
    from canoa.execution.step_records import StepRecord
    from canoa.execution.steps import Course
    from canoa.store.ledger import TaskRecord

SHOWN: Final = 5
"""Compensations that failed, in the error of their task."""

_JSON: Final = ContentType.JSON.value
MAX_ERROR_CHARS: Final = result.MAX_ERROR_CHARS


class DeadlinePassed(Exception):
    """The task's caller does not want an attempt to start any more."""


# --- An attempt -------------------------------------------------------------------------------------------


def attempt(course: Course, step: StepRecord, request: Message, *, now_ms: int) -> tuple[str, Publication]:
    """With its key, which is its request id. Raises `InputMissing`, `PayloadTooLarge` and `DeadlinePassed`."""
    outline = course.outline
    planned = outline.steps[step.step]
    headers = request.headers
    if step.step >= outline.count:
        headers = _without_deadline(headers)
        step_input = _compensation_input(course, step.step, request.body)
    else:
        if headers:
            _check_deadline(headers, now_ms)
        step_input = input_of(planned, request.body, _outputs_before(course, step.step))
    key = request_id(step.task_id, step.step, step.attempt, step.send)
    publication = routed.to_node(
        step.node_id or NodeId(""),
        key,
        task_id=TaskId(step.task_id),
        step=planned.name,
        action=planned.action,
        step_input=step_input,
        attempt=step.attempt,
        timeout_s=planned.timeout_s,
        expires_s=course.wanted_for_s(step),
        request=headers,
        idempotency_key=_idempotency_key(course, step) if outline.undoes else None,
    )
    return key, publication


def _compensation_input(course: Course, at: int, task_input: bytes) -> bytes:
    undone = course.steps[course.outline.own_place(at)]
    planned = course.outline.steps[undone.step]
    output = undone.output if undone.is_ok else None
    return compensation_input(planned, task_input, _outputs_before(course, undone.step), output)


def _idempotency_key(course: Course, step: StepRecord) -> str | None:
    """Another one once what was done is undone: with the old one, whoever deduplicates by it would do nothing."""
    own = course.outline.own_place(step.step)
    other = course.steps[own] if own != step.step else course.compensation_of(own)
    return f"{step.task_id}.{step.step}.{other.send}" if other is not None and other.send else None


def _without_deadline(headers: Mapping[str, HeaderValue]) -> Mapping[str, HeaderValue]:
    """It is the caller's, and for doing: undoing may begin later."""
    return {name: value for name, value in headers.items() if name != task_wire.DEADLINE}


def _check_deadline(headers: Mapping[str, HeaderValue], now_ms: int) -> None:
    deadline_ms = headers.get(task_wire.DEADLINE)
    if isinstance(deadline_ms, int) and now_ms >= deadline_ms:
        raise DeadlinePassed("its deadline passed before it was sent to a node")


def _outputs_before(course: Course, at: int) -> dict[str, bytes]:
    planned, outputs = course.outline.steps, dict[str, bytes]()
    for place in course.outline.before[at]:  # mostly one: a comprehension takes twice as long
        outputs[planned[place].name] = course.steps[place].output or b"null"
    return outputs


# --- The end ----------------------------------------------------------------------------------------------


def end(
    task: TaskRecord, course: Course, outcome: Outcome, *, told: StepEnd | None, ended_ms: int
) -> tuple[End, Publication]:
    """As the task's row ends, and what is published about it. `told`: the answer that ended it, if one did."""
    task_id = TaskId(task.id)
    error = _error(course, outcome)
    output: bytes | None = None
    if outcome is OK:
        try:
            output = task_output(course.outline.plan, course.outline.final, _outputs(course))
        except PayloadTooLarge as exc:
            outcome, error = Outcome.REFUSED, str(exc)
    attempts, started_ms, last = _story(course.own)
    ended = End(
        task_id=task_id,
        action=ActionName(task.action),
        outcome=outcome,
        result=(
            result.success_message(task_id, output, _JSON, None)
            if output is not None
            else result.failure_message(task_id, outcome, _failure(course, error, attempts, told))
        ),
        ended_ms=ended_ms,
        started_ms=started_ms,
        attempts=attempts,
        node_id=last.node_id if last is not None else None,
        error=error,
        run=task.run,
    )
    return ended, routed.final_result(task_id, _published(task, course, ended, output), outcome)


def _story(steps: Sequence[StepRecord]) -> tuple[int, int | None, AttemptRow | None]:
    """Of a whole task: its attempts, the first sign of work (by whoever's clock says it), and what ended last."""
    attempts, started_ms, last = 0, None, None
    for step in steps:
        if step.story:
            attempts += step.attempt
            first_ms = step.story[0].started_ms or step.story[0].sent_ms
            started_ms = first_ms if started_ms is None or first_ms < started_ms else started_ms
            last = step.story[-1] if last is None or _ended_ms(step.story[-1]) > _ended_ms(last) else last
    return attempts, started_ms, last


def _error(course: Course, outcome: Outcome) -> str | None:
    """Of several steps it names the one, and what of them could not be undone."""
    if outcome is OK:
        return None
    failed = course.failure()
    if outcome is Outcome.CANCELLED or failed is None:
        return compensation.CALLED_OFF + _not_undone(course)
    name = course.outline.steps[failed.step].name
    error = failed.error or outcome.value
    return error if len(course.steps) == 1 else f"step {name}: {error}{_not_undone(course)}"


def _not_undone(course: Course) -> str:
    outline = course.outline
    failed = [
        f"step {outline.steps[outline.own_place(each.step)].name} could not be compensated: {each.error or ''}"
        for each in (compensation.failed(outline, course.steps) if outline.undoes else ())
    ]
    shown = [*failed[:SHOWN], f"and {len(failed) - SHOWN} more"] if len(failed) > SHOWN else failed
    return "".join(f"; {each[: MAX_ERROR_CHARS // SHOWN]}" for each in shown)


def _failure(course: Course, error: str | None, attempts: int, told: StepEnd | None) -> result.Failure:
    """With what only the node's answer says, where that is what ended the task."""
    failed = course.failure()
    if told is None or failed is None or told.step != failed.step:
        return result.failure(error or "", attempts=attempts)
    is_single = len(course.steps) == 1
    return result.failure(
        plain((told.error if is_single else error) or ""),
        error_type=plain(told.error_type) if is_single else "",
        attempts=attempts,
        traceback=plain(told.traceback),
    )


def _published(task: TaskRecord, course: Course, ended: End, output: bytes | None) -> bytes:
    plan = course.outline.plan
    if len(course.steps) == 1:
        return routed.single_result(ended.task_id, plan.steps[0].action, output=output, error=ended.error)
    return consolidated(
        task.id,
        plan.name,
        status=ended.outcome.value,
        steps=[_report(course, step) for step in course.own],
        output=output,
        created_ms=task.submitted_ms,
        ended_ms=ended.ended_ms,
        error=ended.error,
    )


def _report(course: Course, step: StepRecord) -> StepReport:
    planned = course.outline.steps[step.step]
    undone = course.compensation_of(step.step)
    last = step.story[-1] if step.story else None
    started_ms = last.started_ms if last is not None else None
    return StepReport(
        name=planned.name,
        action=planned.action,
        status=step.outcome or SKIPPED,
        output=step.output,
        node=step.node_id,
        attempts=step.attempt if step.story else 0,
        queued_ms=None if started_ms is None or step.ready_ms is None else max(0, started_ms - step.ready_ms),
        started_ms=started_ms,
        ended_ms=last.ended_ms if last is not None else None,
        error=step.error,
        compensation=None if undone is None or undone.is_open else _report(course, undone),
    )


def _outputs(course: Course) -> dict[str, bytes]:
    names = course.outline.steps
    return {names[step.step].name: step.output for step in course.own if step.output is not None}


def _ended_ms(sent: AttemptRow) -> int:
    return sent.ended_ms or sent.sent_ms
