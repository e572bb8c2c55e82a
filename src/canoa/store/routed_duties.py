"""Messages that a group of moves has yet to build, and what must be loaded for them. Values, and questions about them.

They are built after the whole group was taken: only then is it known which outputs they need, and those that another
move of the group made pointless are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd
from canoa.execution.step_rules import Effect
from canoa.execution.steps import Course
from canoa.store.ledger import TaskRecord
from canoa.store.routed_memory import RoutedTask
from canoa.store.routed_port import Moved, Owed
from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    from collections.abc import Iterable


class Answer(msgspec.Struct, gc=False):
    """What will be a `Moved`."""

    now_ms: int
    effect: Effect
    task: TaskRecord | None = None
    sent: list[Owed] = []  # left already, before it is on disk
    owed: list[Owed] = []


class Attempt(msgspec.Struct, gc=False):
    """To a node."""

    known: RoutedTask
    course: Course
    answer: Answer
    step: int
    send: int


class Ending(msgspec.Struct, gc=False):
    """To everybody who wants to know how the task ended."""

    known: RoutedTask
    course: Course
    answer: Answer
    outcome: Outcome
    told: StepEnd | None  # what ended it, if a node did


class Reply(msgspec.Struct):
    """To a caller who asked again after the end."""

    task: TaskRecord
    answer: Answer
    queue: str


Duty: TypeAlias = Attempt | Ending | Reply


class Wanted(msgspec.Struct):
    """What must be known before messages can be built, besides the rows: blobs of tasks, outputs of steps."""

    messages: dict[str, None] = {}  # by task; sets that keep the order
    results: dict[str, None] = {}
    outputs: dict[tuple[str, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self.messages or self.results or self.outputs)


def wanted_for(duties: Iterable[Duty]) -> Wanted:
    wanted = Wanted()
    for duty in duties:
        if isinstance(duty, Reply):
            if duty.task.result is None:
                wanted.results[duty.task.id] = None
            continue
        if duty.known.request is None and isinstance(duty, Attempt):
            wanted.messages[duty.known.task.id] = None
        steps = duty.course.steps
        places = duty.course.outline.needs[duty.step] if isinstance(duty, Attempt) else range(len(steps))
        for at in places:
            if steps[at].output is None and steps[at].is_ok:
                wanted.outputs[steps[at].task_id, at] = None
    return wanted


def moved(answer: Answer) -> Moved:
    effect = answer.effect
    return Moved(
        verdict=effect.verdict,
        sent=tuple(answer.sent),
        owed=tuple(answer.owed),
        task_action=None if answer.task is None else ActionName(answer.task.action),
        node_id=effect.node_id,
        action=effect.action,
        step=effect.step,
        queued_ms=effect.queued_ms,
        outcome=effect.outcome,
        step_outcome=effect.step_outcome,
        took_ms=effect.took_ms,
        context=effect.context,
        freed=effect.freed,
        due_ms=tuple(effect.due_ms),
        cancel=effect.cancel,
    )
