"""A routed task under any order of answers, doubles, losses, timers, restarts, cancellations and reruns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.execution.course_words import NOW_MS, TASK, Course, answer, course_of, due, lost, plan_of

from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepDue, StepEnd, StepLost, Verdict
from canoa.execution.step_records import BLOCKED, SENT, WAITING
from canoa.execution.step_rules import LOOK_MS
from canoa.execution.step_settings import StepSettings

if TYPE_CHECKING:
    from canoa.execution.step_rules import Effect

ENDS = [Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.REFUSED, Outcome.POISONED, Outcome.EXPIRED]
EVENTS = ["answer", "answer", "answer", "again", "lose", "return", "due", "old_due", "restart", "cancel", "rerun"]
SETTINGS = StepSettings(queue_timeout_s=300.0)  # an hour of looks for a node would be most of what an example takes


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[int, ...]]:
    count = draw(st.integers(1, 6))
    return [tuple(sorted(draw(st.sets(st.integers(0, at - 1))))) if at else () for at in range(count)]


class Life:
    """One task, whatever happens to it, and what must hold all the while."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.now_ms = NOW_MS
        self.heard: list[StepEnd | StepLost] = []
        self.timers: list[StepDue] = []
        self.ends = 0  # of the current run
        self.check(course.begin(NOW_MS))

    def check(self, effect: Effect) -> None:
        self.ends += effect.outcome is not None
        for at in effect.sends:
            assert all(self.course.steps[place].is_ok for place in self.course.outline.before[at])
        assert self.ends == (not self.course.is_open)
        for at, step in enumerate(self.course.steps):
            self._check_step(at, step.state, step.due_ms)

    def _check_step(self, at: int, state: str, due_ms: int | None) -> None:
        """Nothing hangs, and nothing is open in a task that has ended."""
        before = [self.course.steps[place] for place in self.course.outline.before[at]]
        if state == BLOCKED:
            assert any(step.is_open for step in before)
        if state in (WAITING, SENT):
            assert due_ms is not None
            assert due_ms <= self.now_ms + LOOK_MS
        else:
            assert due_ms is None
        assert self.course.is_open or state not in (BLOCKED, WAITING, SENT)

    def act(self, event: str, data: st.DataObject) -> None:
        self.now_ms += data.draw(st.sampled_from([0, 1, 150, 11_000, 45_000]))
        self.course.route.nodes = data.draw(st.sampled_from([[], ["a"], ["a", "b"]]))
        match event:
            case "answer" | "lose" | "return":
                self.hear(event, data)
            case "again" if self.heard:
                self.repeat(data.draw(st.sampled_from(self.heard)))
            case "due":
                self.ring(data)
            case "old_due" if self.timers:
                self.ring_again(data.draw(st.sampled_from(self.timers)))
            case "restart":
                self.restart()
            case "cancel":
                self.check(self.course.cancel(self.now_ms))
            case "rerun":
                self.rerun()

    def hear(self, event: str, data: st.DataObject) -> None:
        out = [step.step for step in self.course.steps if step.state == SENT]
        if not out:
            return
        at = data.draw(st.sampled_from(out))
        move: StepEnd | StepLost
        if event == "answer":
            move = answer(self.course, at, data.draw(st.sampled_from(ENDS)), now_ms=self.now_ms)
            effect = self.course.end(move)
        else:
            move = lost(self.course, at, now_ms=self.now_ms, is_returned=event == "return")
            effect = self.course.lose(move)
        assert effect.verdict is Verdict.TAKEN
        self.heard.append(move)
        self.check(effect)

    def repeat(self, move: StepEnd | StepLost) -> None:
        """Whatever was heard once changes nothing the second time."""
        before = msgspec.msgpack.encode(self.course.steps)
        effect = self.course.end(move) if isinstance(move, StepEnd) else self.course.lose(move)

        assert effect.verdict in (Verdict.DOUBLE, Verdict.LATE)
        assert not effect.sends
        assert msgspec.msgpack.encode(self.course.steps) == before
        self.check(effect)

    def ring(self, data: st.DataObject) -> None:
        timed = [step.step for step in self.course.steps if step.due_ms is not None]
        if timed:
            at = data.draw(st.sampled_from(timed))
            timer = due(self.course, at)
            self.now_ms = max(self.now_ms, timer.due_ms)
            self.timers.append(timer)
            self.check(self.course.due(msgspec.structs.replace(timer, now_ms=self.now_ms)))

    def ring_again(self, timer: StepDue) -> None:
        late = msgspec.structs.replace(timer, now_ms=self.now_ms)
        is_set = self.course.steps[timer.step].due_ms == timer.due_ms
        effect = self.course.due(late)
        assert is_set or (effect.verdict is Verdict.LATE and not effect.sends)
        self.check(effect)

    def restart(self) -> None:
        """Another manager reads the rows."""
        old = self.course
        new = course_of(old.outline.plan, settings=SETTINGS)
        new.steps = [msgspec.structs.replace(step, output=None) for step in old.steps]
        new.is_open, new.route = old.is_open, old.route
        new._route = old.route
        self.course = new

    def rerun(self) -> None:
        was_ok = [step.step for step in self.course.steps if step.is_ok]
        effect = self.course.rerun(self.now_ms)
        if effect.verdict is Verdict.TAKEN:
            self.ends = 0
        assert not set(was_ok) & set(effect.sends)
        self.check(effect)

    def let_time_pass(self) -> None:
        """No answer any more: time alone must end it."""
        for _ in range(10_000):
            timed = [(step.due_ms, step.step) for step in self.course.steps if step.due_ms is not None]
            if not timed:
                break
            _, at = min(timed)
            timer = due(self.course, at)
            self.now_ms = max(self.now_ms, timer.due_ms)
            self.check(self.course.due(msgspec.structs.replace(timer, now_ms=self.now_ms)))
        assert not self.course.is_open


@settings(max_examples=300, deadline=None)
@given(dag=dags(), retries=st.integers(0, 2), events=st.lists(st.sampled_from(EVENTS), max_size=30), data=st.data())
def test_every_task_ends_once_whatever_happens_and_nothing_runs_before_its_time(
    dag: list[tuple[int, ...]], retries: int, events: list[str], data: st.DataObject
) -> None:
    life = Life(course_of(plan_of(*dag), nodes=("a", "b"), retries=retries, settings=SETTINGS))

    for event in events:
        life.act(event, data)

    life.let_time_pass()


@given(dag=dags(), data=st.data())
def test_a_task_whose_nodes_answer_well_ends_well_in_any_order(dag: list[tuple[int, ...]], data: st.DataObject) -> None:
    course = course_of(plan_of(*dag))
    effect = course.begin(NOW_MS)
    order = []
    while out := [step.step for step in course.steps if step.state == SENT]:
        at = data.draw(st.sampled_from(out))
        effect = course.end(answer(course, at))
        order.append(at)

    assert (course.is_open, effect.outcome, course.failure()) == (False, Outcome.OK, None)
    assert sorted(order) == list(range(len(dag)))
    assert all(order.index(place) < order.index(at) for at, before in enumerate(dag) for place in before)


@given(attempt=st.integers(-1, 4), send=st.integers(-1, 60), step=st.integers(-3, 5))
def test_an_answer_to_another_attempt_changes_nothing(attempt: int, send: int, step: int) -> None:
    course = course_of(plan_of((), (0,)))
    course.begin(NOW_MS)
    before = msgspec.msgpack.encode(course.steps)
    move = StepEnd(
        task_id=TASK, step=step, attempt=attempt, send=send, outcome=Outcome.OK, output=b"1", now_ms=NOW_MS + 1
    )

    effect = course.end(move)

    is_it = (step, attempt, send) == (0, 1, 1)
    assert (effect.verdict is Verdict.TAKEN) is is_it
    assert is_it or msgspec.msgpack.encode(course.steps) == before
