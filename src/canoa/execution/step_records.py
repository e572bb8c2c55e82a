"""The rows of a routed task as the rules change them, and what of a plan they need at hand. Values only."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.errors import WrongUse
from canoa.execution.compensation_places import compensating_step, undone_steps, waits
from canoa.execution.plan import FromStep, Plan, Step
from canoa.execution.plan_inputs import final_steps
from canoa.execution.step_moves import AttemptRow, StepState
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCKED: Final = StepState.BLOCKED.value
WAITING: Final = StepState.WAITING.value
SENT: Final = StepState.SENT.value
ENDED: Final = StepState.ENDED.value
SKIPPED: Final = StepState.SKIPPED.value
OPEN: Final = frozenset({BLOCKED, WAITING, SENT})

MAX_STORY: Final = 50
"""Sends of one step that are remembered. The first ones are left out: a step may look for a node for an hour."""

encode_story = msgspec.msgpack.Encoder().encode
decode_story = msgspec.msgpack.Decoder(list[AttemptRow]).decode


class StepRecord(msgspec.Struct, gc=False):
    """A row of `steps`, in the order of its columns. Of a loaded one the output is not known. A step to which nothing
    has happened yet has no row: it is as its plan says, and `BLOCKED`."""

    task_id: str
    step: int
    state: str
    outcome: str | None = None
    attempt: int = 0  # the one that is out or comes next; 0: none was ever due
    send: int = 0  # how often it was sent to a node, over all runs of its task
    retries: int = 0  # that its last attempt was allowed
    node_id: NodeId | None = None  # where it went last
    ready_ms: int | None = None
    due_ms: int | None = None
    limit_ms: int | None = None  # when the attempt that is out has timed out; None: never
    ended_ms: int | None = None
    error: str | None = None
    story: list[AttemptRow] = []  # every time that it was sent; packed in the row
    output: bytes | None = None
    is_stored: bool = False  # it has a row
    is_left_out: bool = False  # that it was sent was not written, or later by others: whatever comes next is

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def is_ok(self) -> bool:
        return self.outcome == "ok"


class Outline(msgspec.Struct, frozen=True):
    """A plan with its id and, by place instead of name, who waits for whom. Behind its own steps stand the
    compensations that they name."""

    id: str
    doc: bytes
    plan: Plan
    steps: tuple[Step, ...]
    count: int  # of its own steps
    undoes: tuple[int, ...]  # of each compensation, the step that it is for
    before: tuple[tuple[int, ...], ...]
    behind: tuple[tuple[int, ...], ...]
    needs: tuple[tuple[int, ...], ...]  # whose outputs must be at hand for its input
    sources: tuple[tuple[int, ...], ...]  # of these, those that it comes from: on the others it only waits
    final: tuple[str, ...]  # the steps whose outputs are the task's

    def own_place(self, place: int) -> int:
        """Of a compensation, that of the step that it is for."""
        return place if place < self.count else self.undoes[place - self.count]


def steps_of(task_id: str, outline: Outline, rows: Iterable[Iterable[Any]]) -> list[StepRecord]:
    """All steps of a task. `rows`: those of it in the store, without their outputs."""
    steps = [StepRecord(task_id, at, BLOCKED) for at in range(len(outline.before))]
    for *values, story in rows:
        step = StepRecord(*values)
        step.story, step.is_stored = decode_story(story), True
        steps[step.step] = step
    return steps


_encode_plan = msgspec.json.Encoder(order="deterministic").encode
_decode_plan = msgspec.json.Decoder(Plan).decode


def encode_plan(plan: Plan) -> bytes:
    """The same for the same plan."""
    return _encode_plan(plan)


def plan_id(doc: bytes) -> str:
    """From what `encode_plan` gave."""
    return hashlib.sha256(doc).hexdigest()[:32]


def outline_of(doc: bytes) -> Outline:
    """From what `encode_plan` gave. Raises `WrongUse` for a plan that could never end."""
    plan = _decode_plan(doc)
    places = {step.name: at for at, step in enumerate(plan.steps)}
    before = tuple(tuple(places.get(name, at) for name in step.after) for at, step in enumerate(plan.steps))
    if not plan.steps or any(place >= at for at, waited_for in enumerate(before) for place in waited_for):
        raise WrongUse(f"plan {plan.name!r:.100} is not in an order in which it can run; check it with `checked` first")
    behind: list[list[int]] = [[] for _ in plan.steps]
    for at, waited_for in enumerate(before):
        for place in waited_for:
            behind[place].append(at)
    sources = tuple(_sources(step, waited_for, plan) for step, waited_for in zip(plan.steps, before, strict=True))
    undoes = undone_steps(plan)
    return Outline(
        plan_id(doc),
        doc,
        plan,
        plan.steps + tuple(compensating_step(plan.steps[at]) for at in undoes),
        len(plan.steps),
        undoes,
        before + waits(behind, undoes),
        (*map(tuple, behind), *(() for _ in undoes)),  # a compensation is begun by none other: see `compensation.py`
        before + tuple((*before[at], at) for at in undoes),
        sources + tuple((at,) for at in undoes),
        tuple(final_steps(plan)),
    )


def _sources(step: Step, before: tuple[int, ...], plan: Plan) -> tuple[int, ...]:
    if step.arguments is None:
        return before
    named = {each.step for each in step.arguments.values() if isinstance(each, FromStep)}
    return tuple(place for place in before if plan.steps[place].name in named)


def avoided(story: Sequence[AttemptRow], attempt: int) -> frozenset[NodeId]:
    """Nodes that did not answer, up to this attempt. Later ones are of a run before: attempts count from one again."""
    if not story:
        return _NOBODY
    nodes: set[NodeId] = set()
    for each in reversed(story):
        if each.attempt > attempt:
            break
        attempt = each.attempt
        if each.outcome in _UNANSWERED:
            nodes.add(each.node_id)
    return frozenset(nodes)


_NOBODY: Final[frozenset[NodeId]] = frozenset()
LOST: Final = "lost"
RETURNED: Final = "returned"
_UNANSWERED: Final = frozenset({LOST, RETURNED, "timed_out", "poisoned"})
