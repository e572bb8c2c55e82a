"""A task with compensations under any plan, any failure and any order of answers, losses, timers, kills and reruns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.execution.course_words import NOW_MS, Course, answer, course_of, due, lost, plan_of

from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.execution.step_records import BLOCKED, ENDED, OPEN, SENT, WAITING
from canoa.execution.step_rules import LOOK_MS
from canoa.execution.step_settings import StepSettings

if TYPE_CHECKING:
    from canoa.execution.step_rules import Effect

ENDS = [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.REFUSED, Outcome.POISONED]
SAYS_NOTHING_DONE = {"failed", "refused", "expired"}
EVENTS = ["answer", "answer", "answer", "answer", "lose", "return", "due", "restart", "cancel", "rerun"]
SETTINGS = StepSettings(queue_timeout_s=300.0)  # an hour of looks for a node would be most of what an example takes


@st.composite
def sagas(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], set[int]]:
    """Who waits for whom, and who names a compensation."""
    count = draw(st.integers(1, 6))
    dag = [tuple(sorted(draw(st.sets(st.integers(0, at - 1))))) if at else () for at in range(count)]
    return dag, draw(st.sets(st.integers(0, count - 1), min_size=1))


def all_behind(dag: list[tuple[int, ...]], at: int) -> set[int]:
    """Every step that waits for it, also by way of others."""
    behind: set[int] = set()
    for later in range(at + 1, len(dag)):
        if at in dag[later] or behind & set(dag[later]):
            behind.add(later)
    return behind


class Saga:
    """One task, and what must hold of it all the while."""

    def __init__(self, dag: list[tuple[int, ...]], compensated: set[int], retries: int) -> None:
        self.dag = dag
        self.course: Course = course_of(
            plan_of(*dag, compensated=compensated), nodes=("a", "b"), retries=retries, settings=SETTINGS
        )
        self.place = {at: len(dag) + number for number, at in enumerate(self.course.outline.undoes)}
        self.now_ms = NOW_MS
        self.in_doubt: dict[int, bool] = dict.fromkeys(range(len(dag)), False)  # of this run: something may be there
        self.undone: dict[int, int] = {}  # compensations that ended well since, by step
        self.is_cancelled = False
        self.follow(self.course.begin(NOW_MS))

    # --- What must hold -----------------------------------------------------------------------------

    def follow(self, effect: Effect) -> None:
        steps = self.course.steps
        for place in effect.sends:
            if place < len(self.dag):
                assert all(steps[each].is_ok for each in self.dag[place])
            else:
                self._may_begin(self.course.outline.own_place(place))
        for step in steps:
            assert (step.due_ms is not None) == (step.state in (WAITING, SENT))
            assert step.due_ms is None or step.due_ms <= self.now_ms + LOOK_MS
        assert (effect.outcome is None) or not self.course.is_open
        if effect.outcome is not None:
            self._has_ended(effect.outcome)

    def _may_begin(self, at: int) -> None:
        """Its compensation. Everything has ended, and what was done behind it is undone, or cannot be."""
        steps = self.course.steps
        assert all(step.state not in OPEN for step in steps[: len(self.dag)])
        assert self._is_to_be_undone(at)
        for later in all_behind(self.dag, at) & self.place.keys():
            assert steps[self.place[later]].state == ENDED or not self._is_to_be_undone(later)

    def _is_to_be_undone(self, at: int) -> bool:
        return self.course.steps[at].is_ok or self.in_doubt[at]

    def _has_ended(self, outcome: Outcome) -> None:
        own = self.course.steps[: len(self.dag)]
        assert all(step.state not in OPEN for step in own)
        if all(step.is_ok for step in own):
            assert (outcome, self.undone) == (Outcome.OK, {})
            return
        for at, place in self.place.items():
            compensation = self.course.steps[place]
            assert (compensation.state == ENDED) == self._is_to_be_undone(at)
            assert self.undone.get(at, 0) == compensation.is_ok
        failure = self.course.failure()
        said = Outcome.CANCELLED if self.is_cancelled or failure is None else Outcome(failure.outcome or "")
        assert outcome is said

    # --- What may happen ----------------------------------------------------------------------------

    def act(self, event: str, data: st.DataObject) -> None:
        self.now_ms += data.draw(st.sampled_from([1, 150, 11_000, 45_000]))
        self.course.route.nodes = data.draw(st.sampled_from([[], ["a"], ["a", "b"], ["a", "b"]]))
        out = [step.step for step in self.course.steps if step.state == SENT]
        match event:
            case "answer" if out:
                self.hear(data.draw(st.sampled_from(out)), data.draw(st.sampled_from(ENDS)))
            case "lose" | "return" if out:
                self.lose(data.draw(st.sampled_from(out)), is_returned=event == "return")
            case "due":
                self.ring(data)
            case "restart":
                self.restart()
            case "cancel":
                self.cancel()
            case "rerun":
                self.rerun()

    def hear(self, at: int, outcome: Outcome) -> None:
        effect = self.course.end(answer(self.course, at, outcome, now_ms=self.now_ms))
        assert effect.verdict is Verdict.TAKEN
        self._note(at, outcome.value)
        self.follow(effect)

    def lose(self, at: int, *, is_returned: bool) -> None:
        self._note(at, "lost")
        self.follow(self.course.lose(lost(self.course, at, now_ms=self.now_ms, is_returned=is_returned)))

    def _note(self, place: int, outcome: str) -> None:
        own = self.course.outline.own_place(place)
        if own == place and outcome not in SAYS_NOTHING_DONE and outcome != "ok":
            self.in_doubt[own] = True
        elif own != place and outcome == "ok":
            self.undone[own] = self.undone.get(own, 0) + 1

    def ring(self, data: st.DataObject) -> None:
        timed = [step.step for step in self.course.steps if step.due_ms is not None]
        if timed:
            self.ring_at(data.draw(st.sampled_from(timed)))

    def ring_at(self, at: int) -> None:
        timer = due(self.course, at)
        self.now_ms = max(self.now_ms, timer.due_ms)
        sent = self.course.steps[at].story[-1:] if self.course.steps[at].state == SENT else []
        effect = self.course.due(msgspec.structs.replace(timer, now_ms=self.now_ms))
        if sent and effect.closed:
            self._note(at, "timed_out")
        self.follow(effect)

    def restart(self) -> None:
        """Another manager reads the rows."""
        old = self.course
        new = course_of(old.outline.plan, settings=SETTINGS)
        new.steps = [msgspec.structs.replace(step, output=None, is_left_out=False) for step in old.steps]
        new.is_open, new.route = old.is_open, old.route
        new._route = old.route
        self.course = new

    def cancel(self) -> None:
        out = [step.step for step in self.course.own if step.state == SENT]
        effect = self.course.cancel(self.now_ms)
        if effect.verdict is Verdict.TAKEN:
            self.is_cancelled = True
            self.in_doubt |= dict.fromkeys(out, True)
        self.follow(effect)

    def rerun(self) -> None:
        steps = self.course.steps
        ended = {at: steps[place] for at, place in self.place.items() if steps[place].state == ENDED}
        was_undone = {at for at, step in ended.items() if step.is_ok}
        effect = self.course.rerun(self.now_ms)
        if effect.verdict is not Verdict.TAKEN:
            return
        if not was_undone.issuperset(ended):  # the compensations that failed come first
            assert all(place >= len(self.dag) for place in effect.sends)
        else:
            assert not any(steps[at].is_ok for at in was_undone)
            self.undone.clear()
            self.is_cancelled = False
            self.in_doubt = dict.fromkeys(self.in_doubt, False)
        self.follow(effect)

    def let_time_pass(self) -> None:
        """No answer any more: time alone must end it."""
        for _ in range(10_000):
            timed = [(step.due_ms, step.step) for step in self.course.steps if step.due_ms is not None]
            if not timed:
                break
            self.ring_at(min(timed)[1])
        assert not self.course.is_open


@settings(max_examples=400, deadline=None)
@given(saga=sagas(), retries=st.integers(0, 2), events=st.lists(st.sampled_from(EVENTS), max_size=40), data=st.data())
def test_whatever_happens_all_that_was_done_is_undone_once_from_behind_and_the_task_ends(
    saga: tuple[list[tuple[int, ...]], set[int]], retries: int, events: list[str], data: st.DataObject
) -> None:
    life = Saga(*saga, retries)

    for event in events:
        life.act(event, data)

    life.let_time_pass()


@settings(max_examples=200, deadline=None)
@given(saga=sagas(), data=st.data())
def test_a_failure_undoes_every_step_that_ended_well_in_reverse_order(
    saga: tuple[list[tuple[int, ...]], set[int]], data: st.DataObject
) -> None:
    dag, compensated = saga
    fails = data.draw(st.integers(0, len(dag) - 1))
    course = course_of(plan_of(*dag, compensated=compensated))
    course.begin(NOW_MS)
    undone: list[int] = []
    while out := [step.step for step in course.steps if step.state == SENT]:
        at = data.draw(st.sampled_from(out))
        course.end(answer(course, at, Outcome.FAILED if at == fails else Outcome.OK))
        undone += [course.outline.own_place(at)] if at >= len(dag) else []

    ended_well = {at for at in compensated if course.steps[at].is_ok}
    assert sorted(undone) == sorted(ended_well)
    for at in undone:
        assert all(undone.index(later) < undone.index(at) for later in all_behind(dag, at) & ended_well)
    assert not course.is_open
    assert [step.state for step in course.steps[len(dag) :]].count(BLOCKED) == len(compensated) - len(undone)
