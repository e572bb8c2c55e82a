"""What an attempt needs of a node, from the rows of its task. Pure; who chooses is behind `step_moves.Route`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.execution.step_moves import Need
from canoa.execution.step_records import avoided
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_records import Outline, StepRecord


def need_of(outline: Outline, steps: Sequence[StepRecord], step: StepRecord, now_ms: int, *, input_bytes: int) -> Need:
    """Of the attempt that comes next. `input_bytes`: of the task's input."""
    at = step.step
    planned = outline.steps[at]
    return Need(
        planned.action,
        now_ms,
        avoided(step.story, step.attempt),
        _retries_left(planned.retries, step),
        _size_bytes(outline.needs[at], steps, input_bytes),
        planned.placement,
        _nodes(outline.sources[at], steps),
        outline.plan.site,
        step.task_id,
        at,
    )


def _nodes(places: Sequence[int], steps: Sequence[StepRecord]) -> tuple[NodeId, ...]:
    """That its input comes from."""
    if len(places) == 1:  # as mostly
        return (NodeId(steps[places[0]].node_id or ""),)
    return tuple([NodeId(steps[place].node_id or "") for place in places])


def _size_bytes(places: Sequence[int], steps: Sequence[StepRecord], input_bytes: int) -> int:
    if not places:
        return input_bytes
    size_bytes = 0
    for place in places:  # mostly one: a sum over a list takes three times as long
        size_bytes += len(steps[place].output or b"")
    return size_bytes


def _retries_left(planned: int | None, step: StepRecord) -> int | None:
    """After the attempt that comes next; None where only its node can say."""
    retries = step.retries if planned is None and step.attempt > 1 else planned
    return None if retries is None else retries + 1 - step.attempt
