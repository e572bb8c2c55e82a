"""Undoing what a task did that cannot end well: what has to be undone, what can be undone now, what runs again. Pure.

All of it is read from the rows: the plan's own steps have ended, and do not change while they are undone. So whoever
finds the task knows how far it is. What happens to a compensation that runs is in `steps.py`, as to any other step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution.step_records import BLOCKED, ENDED, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canoa.execution.step_records import Outline, StepRecord

UNDONE: Final = "undone"
"""How an attempt of a run before went, whose effect is there no more."""

CALLED_OFF: Final = "the task was cancelled"
"""The error of a step that was open then."""

_DID_NOTHING: Final = frozenset({"failed", "retried", "refused", "expired", UNDONE})
"""Outcomes of attempts that left nothing behind, by the word of whoever ran them. After any other, nobody knows."""


# --- While a task runs ----------------------------------------------------------------------------------


def is_undoing(outline: Outline, steps: Sequence[StepRecord]) -> bool:
    """Of an open task: nothing is left to do but to undo."""
    return _have_ended(outline, steps) and not _are_ok(outline, steps)


def has_ended(outline: Outline, steps: Sequence[StepRecord]) -> bool:
    """Nothing is left to do, nor to undo."""
    if not _have_ended(outline, steps):
        return False
    return _are_ok(outline, steps) or not any(steps[place].state in OPEN for place in wanted(outline, steps))


def ready(outline: Outline, steps: Sequence[StepRecord]) -> list[int]:
    """Compensations that can begin now."""
    if not is_undoing(outline, steps):
        return []
    left = {place for place in wanted(outline, steps) if steps[place].state in OPEN}
    return sorted(each for each in left if steps[each].state == BLOCKED and left.isdisjoint(outline.before[each]))


def wanted(outline: Outline, steps: Sequence[StepRecord]) -> Iterator[int]:
    """The compensations of what has to be undone."""
    for place, at in enumerate(outline.undoes, outline.count):
        if _may_have_happened(steps[at]):
            yield place


def was_called_off(outline: Outline, steps: Sequence[StepRecord]) -> bool:
    own = (steps[at] for at in range(outline.count))
    return any(step.error == CALLED_OFF and step.outcome in (None, "cancelled") for step in own)


def _may_have_happened(step: StepRecord) -> bool:
    return step.is_ok or any(sent.outcome not in _DID_NOTHING for sent in step.story)


def _have_ended(outline: Outline, steps: Sequence[StepRecord]) -> bool:
    return all(steps[at].state not in OPEN for at in range(outline.count - 1, -1, -1))


def _are_ok(outline: Outline, steps: Sequence[StepRecord]) -> bool:
    return all(steps[at].is_ok for at in range(outline.count))


def shown(outline: Outline, steps: Sequence[StepRecord]) -> list[StepRecord]:
    """But for compensations of what need not be undone, or not yet."""
    if not outline.undoes:
        return [*steps]
    places = {*wanted(outline, steps)} if is_undoing(outline, steps) else set()
    return [step for step in steps if step.step < outline.count or step.state != BLOCKED or step.step in places]


# --- After its end --------------------------------------------------------------------------------------


def failed(outline: Outline, steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Compensations that ran and did not succeed."""
    return [step for step in steps[outline.count :] if step.state == ENDED and not step.is_ok]


def to_run_again(outline: Outline, steps: Sequence[StepRecord]) -> list[int]:
    """Of a task that is undone: what did not succeed, what was undone, and all that waits for either. With all of the
    compensations that ran, for the next time."""
    again = {at for place, at in enumerate(outline.undoes, outline.count) if steps[place].state == ENDED}
    for at in range(outline.count):
        if not steps[at].is_ok or not again.isdisjoint(outline.before[at]):
            again.add(at)
    return [*sorted(again), *(place for place in range(outline.count, len(steps)) if steps[place].state != BLOCKED)]


def forget_effects(step: StepRecord) -> None:
    """Its compensation has succeeded: what it did does not count any more."""
    for number, sent in enumerate(step.story):
        if sent.outcome not in _DID_NOTHING:
            step.story[number] = msgspec.structs.replace(sent, outcome=UNDONE)
