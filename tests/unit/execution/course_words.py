"""What tests of the rules of steps say things with: plans by numbers, and a course over rows in memory."""

from __future__ import annotations

import random as chance
from typing import TYPE_CHECKING

from canoa.errors import UnknownAction
from canoa.execution import steps
from canoa.execution.outcome import Outcome
from canoa.execution.plan import Plan, Step
from canoa.execution.step_moves import Choice, StepDue, StepEnd, StepLost
from canoa.execution.step_records import BLOCKED, StepRecord, encode_plan, outline_of
from canoa.execution.step_settings import StepSettings
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire.sapparchi import request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from canoa.execution.step_moves import Need


NOW_MS = 1_800_000_000_000
TASK = TaskId("t")


class Turn:
    """A route that gives each of its nodes in turn."""

    def __init__(self, nodes: Sequence[str], *, retries: int = 0, timeout_s: float | None = 30.0) -> None:
        self.nodes = list(nodes)
        self.avoided: frozenset[NodeId] = frozenset()
        self.retries_left: int | None = None
        self.is_known_now = True
        self.last_answers_ms: dict[str, int] = {}
        self.start_ms = 0
        self._retries = retries
        self._timeout_s = timeout_s
        self._turn = 0

    def choose(self, need: Need) -> Choice | None:
        self.avoided, self.retries_left = need.avoid, need.retries_left
        free = [node for node in self.nodes if node not in need.avoid] or self.nodes
        if not free:
            return None
        self._turn += 1
        node_id = NodeId(free[self._turn % len(free)])
        return Choice(node_id=node_id, why="its turn", timeout_s=self._timeout_s, retries=self._retries)

    def take_back(self, node_id: NodeId, action: ActionName, now_ms: int) -> None:
        """Nothing is counted here."""

    def is_known(self, action: ActionName) -> bool:
        return self.is_known_now

    def unknown(self, action: ActionName) -> UnknownAction:
        return UnknownAction(action, nodes_offer="")

    def answered_ms(self, node_id: NodeId) -> int | None:
        return self.last_answers_ms.get(node_id)

    def since_ms(self) -> int:
        return self.start_ms


class Course(steps.Course):
    """With a route that tests may change."""

    route: Turn


def plan_of(
    *after: tuple[int, ...],
    retries: int | None = None,
    timeout_s: float | None = None,
    compensated: Container[int] = (),
) -> Plan:
    """One step for each, which waits for those. `compensated`: those that name a compensation."""
    return Plan(
        name="numbers",
        steps=tuple(
            Step(
                name=f"s{at}",
                action=ActionName("app.work"),
                after=tuple(f"s{place}" for place in before),
                retries=retries,
                timeout_s=timeout_s,
                compensate=ActionName("app.undo") if at in compensated else None,
            )
            for at, before in enumerate(after)
        ),
    )


def course_of(
    plan: Plan,
    *,
    nodes: Sequence[str] = ("a",),
    retries: int = 0,
    timeout_s: float | None = 30.0,
    settings: StepSettings | None = None,
    random: Callable[[], float] = chance.random,
) -> Course:
    """Of a task that has not begun."""
    route = Turn(nodes, retries=retries, timeout_s=timeout_s)
    outline = outline_of(encode_plan(plan))
    course = Course(
        outline,
        [StepRecord(TASK, at, BLOCKED) for at in range(len(outline.steps))],
        is_open=True,
        route=route,
        settings=settings or StepSettings(),
        random=random,
    )
    course.route = route
    return course


def request(course: steps.Course, at: int) -> str:
    """The id under which the step went out last."""
    step = course.steps[at]
    return request_id(TASK, at, step.attempt, step.send)


def answer(course: steps.Course, at: int, outcome: Outcome = Outcome.OK, *, now_ms: int = NOW_MS) -> StepEnd:
    """To the attempt that is out."""
    step = course.steps[at]
    return StepEnd(
        task_id=TASK,
        step=at,
        attempt=step.attempt,
        send=step.send,
        outcome=outcome,
        output=b"1",
        now_ms=now_ms,
        error=None if outcome is Outcome.OK else "no",
    )


def lost(course: steps.Course, at: int, *, now_ms: int = NOW_MS, is_returned: bool = False) -> StepLost:
    step = course.steps[at]
    return StepLost(
        task_id=TASK,
        step=at,
        attempt=step.attempt,
        send=step.send,
        why="gone",
        is_returned=is_returned,
        now_ms=now_ms,
    )


def due(course: steps.Course, at: int, *, now_ms: int | None = None, back_ms: int = 0) -> StepDue:
    """Its timer, on time; or because the clock was set back."""
    due_ms = course.steps[at].due_ms
    assert due_ms is not None
    now_ms = due_ms if now_ms is None else now_ms
    return StepDue(task_id=TASK, step=at, due_ms=due_ms, now_ms=now_ms, back_ms=back_ms)
