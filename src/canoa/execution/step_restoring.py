"""First attempts of which no row says that they were sent. Pure.

A store may leave such rows out for a moment: see `store/routed_unwritten.py`. Nothing else leaves an open task with a
step that waits for nothing and has no row, so whoever finds one knows that it was sent, once; not when, and not where.
Compensations have no row until they are begun, and from then on always one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.step_moves import AttemptRow
from canoa.execution.step_records import BLOCKED, SENT, StepRecord
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.step_records import Outline

ANSWERED_WITHIN_MS: Final = 5_000
"""By whoever has it, if anybody does; then it goes to another node. Longer runs fewer steps twice after a manager was
killed, and lets those wait longer that nobody has."""

UNKNOWN_RETRIES: Final = 1
"""Only its node knows how many it allows; the next one that gets the step says so again."""

NOWHERE: Final = NodeId("")
WHY: Final = "not written down before its manager went away"


def restored(outline: Outline, steps: Sequence[StepRecord], sent_ms: int) -> list[StepRecord]:
    """Of an open task, those of its steps that must be out, as if they had been sent then."""
    own = steps[: outline.count]
    return [_sent(outline, step, sent_ms) for step in own if _is_out(outline, steps, step)]


def _is_out(outline: Outline, steps: Sequence[StepRecord], step: StepRecord) -> bool:
    if step.is_stored or step.state != BLOCKED:
        return False
    return all(steps[place].is_ok for place in outline.before[step.step])


def _sent(outline: Outline, step: StepRecord, sent_ms: int) -> StepRecord:
    retries = outline.plan.steps[step.step].retries
    return StepRecord(
        step.task_id,
        step.step,
        SENT,
        attempt=1,
        send=1,
        retries=UNKNOWN_RETRIES if retries is None else retries,
        ready_ms=sent_ms,
        due_ms=sent_ms + ANSWERED_WITHIN_MS,
        story=[AttemptRow(attempt=1, node_id=NOWHERE, why=WHY, sent_ms=sent_ms)],
        is_left_out=True,
    )
