"""The published end of a task of several steps: one JSON with every step's output and times.

A single action has none: its result message goes out as it is. What callers get is in `plan_inputs.task_output`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution.plan_inputs import MAX_JOINED_BYTES
from canoa.urn import action_urn, task_urn
from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIPPED: Final = "skipped"

_NULL: Final = msgspec.Raw(b"null")


class StepReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one step of a task that has ended went."""

    name: str
    action: ActionName
    status: str  # an `Outcome`, or `SKIPPED`
    output: bytes | None = None  # JSON
    node: str | None = None  # of its last attempt
    attempts: int = 0
    queued_ms: int | None = None  # from ready to start
    started_ms: int | None = None
    ended_ms: int | None = None
    error: str | None = None
    compensation: StepReport | None = None  # where what it did had to be undone


class _Step(msgspec.Struct, kw_only=True, gc=False):
    """As published."""

    action: str
    status: str
    output: msgspec.Raw
    node: str | None
    attempts: int
    queued_ms: int | None
    started_at: int | None
    ended_at: int | None
    processing_time: int | None
    error: str | msgspec.UnsetType = msgspec.UNSET
    compensation: _Step | msgspec.UnsetType = msgspec.UNSET


class _Consolidated(msgspec.Struct, kw_only=True, gc=False):
    id: str
    task_id: str
    status: str
    steps: dict[str, _Step]
    output: msgspec.Raw
    created_at: int
    processing_time: int
    error: str | msgspec.UnsetType = msgspec.UNSET
    outputs_left_out: bool | msgspec.UnsetType = msgspec.UNSET


def consolidated(
    request_id: str,
    plan_name: str,
    *,
    status: str,
    steps: Sequence[StepReport],
    output: bytes | None,
    created_ms: int,
    ended_ms: int,
    error: str | None = None,
) -> bytes:
    """`output`: the task's result, None where it has none. What no broker would take goes out without outputs, and
    says so: the store has them."""
    size_bytes = len(output or b"") + sum([len(each.output or b"") for each in steps])
    is_too_large = size_bytes > MAX_JOINED_BYTES
    message = _Consolidated(
        id=request_id,
        task_id=task_urn(plan_name),
        status=status,
        steps={each.name: _published(each, with_output=not is_too_large) for each in steps},
        output=_NULL if output is None or is_too_large else msgspec.Raw(output),
        created_at=created_ms,
        processing_time=max(0, ended_ms - created_ms),
        error=msgspec.UNSET if error is None else error,
        outputs_left_out=True if is_too_large else msgspec.UNSET,
    )
    return msgspec.json.encode(message)


def _published(step: StepReport, *, with_output: bool) -> _Step:
    return _Step(
        action=action_urn(step.action),
        status=step.status,
        output=msgspec.Raw(step.output) if with_output and step.output is not None else _NULL,
        node=step.node,
        attempts=step.attempts,
        queued_ms=step.queued_ms,
        started_at=step.started_ms,
        ended_at=step.ended_ms,
        processing_time=_between(step.started_ms, step.ended_ms),
        error=msgspec.UNSET if step.error is None else step.error,
        compensation=msgspec.UNSET
        if step.compensation is None
        else _published(step.compensation, with_output=with_output),
    )


def _between(started_ms: int | None, ended_ms: int | None) -> int | None:
    """Never negative: a node's clock may be set back while it works."""
    return None if started_ms is None or ended_ms is None else max(0, ended_ms - started_ms)
