"""Undoing: what has to be undone when a task cannot end well, in which order, how it ends, and what runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.execution.course_words import NOW_MS, Course, answer, course_of, due, lost, plan_of

from canoa.execution.compensation import CALLED_OFF, UNDONE, failed, shown
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.execution.step_records import BLOCKED, SENT, encode_plan, outline_of, plan_id

if TYPE_CHECKING:
    from collections.abc import Container

    from canoa.execution.step_rules import Effect

CHAIN = ((), (0,), (1,))


def begun(*after: tuple[int, ...], compensated: Container[int] = (0, 1, 2), retries: int = 0) -> Course:
    course = course_of(plan_of(*after, compensated=compensated), retries=retries)
    course.begin(NOW_MS)
    return course


def end(course: Course, at: int, outcome: Outcome = Outcome.OK, *, after_ms: int = 10) -> Effect:
    effect = course.end(answer(course, at, outcome, now_ms=NOW_MS + after_ms))
    assert effect.verdict is Verdict.TAKEN
    return effect


def names(course: Course, places: list[int]) -> list[str]:
    return [course.outline.steps[place].name for place in places]


def words(course: Course) -> list[str]:
    return [step.outcome or step.state for step in course.steps]


# --- What is undone, and in which order ---------------------------------------------------------------------


def test_a_task_that_ends_well_undoes_nothing() -> None:
    course = begun((), (0,))

    assert end(course, 0).outcome is None
    assert end(course, 1).outcome is Outcome.OK
    assert words(course) == ["ok", "ok", BLOCKED, BLOCKED]
    assert not any(place in course.touched for place in (2, 3))


def test_what_ended_well_is_undone_from_behind_and_the_task_ends_after_it() -> None:
    course = begun(*CHAIN)
    end(course, 0)
    end(course, 1)

    first = end(course, 2, Outcome.FAILED)
    second = end(course, 4)
    last = end(course, 5)

    assert (names(course, first.sends), first.outcome) == (["s1.compensation"], None)
    assert (names(course, second.sends), second.outcome) == (["s0.compensation"], None)
    assert (last.outcome, course.is_open) == (Outcome.FAILED, False)
    assert words(course) == ["ok", "ok", "failed", BLOCKED, "ok", "ok"]


def test_a_compensation_waits_for_those_behind_it_past_steps_that_name_none() -> None:
    course = begun((), (0,), (1,), (2,), compensated=(0, 2))
    for at in range(3):
        end(course, at)

    first = end(course, 3, Outcome.FAILED)

    assert names(course, first.sends) == ["s2.compensation"]
    assert names(course, end(course, 4).sends) == ["s0.compensation"]


def test_what_has_nothing_to_do_with_each_other_is_undone_side_by_side() -> None:
    course = begun((), (0,), (0,), (1, 2), compensated=(0, 1, 2))
    for at in range(3):
        end(course, at)

    effect = end(course, 3, Outcome.FAILED)

    assert sorted(names(course, effect.sends)) == ["s1.compensation", "s2.compensation"]
    assert end(course, effect.sends[0]).sends == []
    assert names(course, end(course, effect.sends[1]).sends) == ["s0.compensation"]


def test_what_runs_beside_a_failure_is_waited_for_and_then_undone() -> None:
    course = begun((), (), compensated=(0, 1))

    assert end(course, 0, Outcome.FAILED).sends == []
    assert names(course, end(course, 1).sends) == ["s1.compensation"]
    assert end(course, 2).outcome is Outcome.FAILED


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED, Outcome.EXPIRED])
def test_a_step_that_says_that_it_did_nothing_is_not_undone(outcome: Outcome) -> None:
    course = begun(())

    assert end(course, 0, outcome).outcome is outcome


@pytest.mark.parametrize("outcome", [Outcome.TIMED_OUT, Outcome.POISONED, Outcome.CANCELLED])
def test_a_step_of_which_nobody_knows_what_it_did_is_undone(outcome: Outcome) -> None:
    course = begun(())

    effect = end(course, 0, outcome)

    assert (names(course, effect.sends), effect.outcome) == (["s0.compensation"], None)
    assert end(course, 1).outcome is outcome


def test_a_step_that_failed_after_an_attempt_that_nobody_answered_is_undone() -> None:
    course = begun((), retries=1)
    late_ms = 1 + due(course, 0).due_ms
    course.due(due(course, 0, now_ms=late_ms))
    course.due(due(course, 0))

    effect = end(course, 0, Outcome.FAILED, after_ms=60_000)

    assert names(course, effect.sends) == ["s0.compensation"]


def test_a_step_that_was_lost_before_it_failed_is_undone() -> None:
    course = begun(())
    course.lose(lost(course, 0))

    assert names(course, end(course, 0, Outcome.FAILED).sends) == ["s0.compensation"]


def test_steps_that_were_never_sent_are_not_undone() -> None:
    course = begun(())
    waiting = course_of(plan_of((), compensated=(0,)))
    waiting.begin(NOW_MS, not_before_ms=NOW_MS + 1000)

    assert waiting.cancel(NOW_MS).outcome is Outcome.CANCELLED
    assert end(course, 0, Outcome.FAILED).outcome is Outcome.FAILED


# --- Compensations are steps --------------------------------------------------------------------------------


def test_a_compensation_is_tried_again_like_any_step() -> None:
    course = begun((), (0,), compensated=(0,), retries=1)
    end(course, 0)
    end(course, 1, Outcome.REFUSED)

    assert end(course, 2, Outcome.FAILED).outcome is None
    assert course.due(due(course, 2)).sends == [2]
    assert end(course, 2, after_ms=5000).outcome is Outcome.REFUSED


def test_one_that_fails_for_good_does_not_stop_the_others() -> None:
    course = begun(*CHAIN)
    end(course, 0)
    end(course, 1)
    end(course, 2, Outcome.FAILED)

    effect = end(course, 4, Outcome.REFUSED)

    assert names(course, effect.sends) == ["s0.compensation"]
    assert end(course, 5).outcome is Outcome.FAILED
    assert [step.step for step in failed(course.outline, course.steps)] == [4]


def test_one_that_nobody_offers_any_more_is_refused_and_the_task_ends() -> None:
    course = begun((), (0,), compensated=(0,))
    end(course, 0)
    course.route.is_known_now, course.route.nodes = False, []

    assert end(course, 1, Outcome.FAILED).outcome is Outcome.FAILED
    assert course.steps[2].outcome == "refused"


def test_a_plan_whose_compensation_nobody_ever_offered_is_refused_before_anything_runs() -> None:
    course = course_of(plan_of((), (0,), compensated=(1,)))
    course.route.is_known = lambda action: action != "app.undo"  # type: ignore[method-assign]

    effect = course.begin(NOW_MS)

    assert (effect.outcome, effect.sends) == (Outcome.REFUSED, [])
    assert "app.undo" in (course.steps[1].error or "")


# --- Cancelling ---------------------------------------------------------------------------------------------


def test_a_cancelled_task_ends_once_it_is_undone_also_what_was_called_off() -> None:
    course = begun(*CHAIN)
    end(course, 0)

    effect = course.cancel(NOW_MS + 20)

    assert (names(course, effect.sends), effect.outcome) == (["s1.compensation"], None)
    assert [step.error for step in course.own] == [None, CALLED_OFF, CALLED_OFF]
    assert names(course, end(course, 4).sends) == ["s0.compensation"]
    assert end(course, 5).outcome is Outcome.CANCELLED


def test_undoing_cannot_be_cancelled() -> None:
    course = begun(*CHAIN)
    end(course, 0)
    course.cancel(NOW_MS + 20)

    again = course.cancel(NOW_MS + 30)

    assert (again.verdict, again.cancel) == (Verdict.LATE, ())
    assert course.steps[4].state == SENT


def test_a_task_that_is_cancelled_after_a_failure_ends_as_cancelled() -> None:
    course = begun((), (), compensated=(1,))
    end(course, 0, Outcome.FAILED)

    assert course.cancel(NOW_MS + 20).outcome is None
    assert end(course, 2).outcome is Outcome.CANCELLED


# --- Running again ------------------------------------------------------------------------------------------


def undone(*after: tuple[int, ...], compensated: Container[int] = (0, 1, 2), fails: int) -> Course:
    """Ended, with all that ran before it undone."""
    course = begun(*after, compensated=compensated)
    for at in range(fails):
        end(course, at)
    end(course, fails, Outcome.FAILED)
    while out := [step.step for step in course.steps if step.state == SENT]:
        end(course, out[0])
    assert not course.is_open
    return course


def test_what_was_undone_runs_again_and_so_does_what_waits_for_it() -> None:
    course = undone((), (0,), (1,), (2,), compensated=(1,), fails=3)

    effect = course.rerun(NOW_MS + 1000)

    assert effect.sends == [1]
    assert words(course) == ["ok", SENT, BLOCKED, BLOCKED, BLOCKED]
    assert [sent.outcome for sent in course.steps[1].story] == [UNDONE, None]
    for at in (1, 2):
        end(course, at, after_ms=2000)
    assert end(course, 3, after_ms=2000).outcome is Outcome.OK


def test_a_second_run_that_fails_undoes_only_what_it_did_itself() -> None:
    course = undone(*CHAIN, fails=2)
    course.rerun(NOW_MS + 1000)

    effect = end(course, 0, Outcome.FAILED, after_ms=2000)

    assert (effect.outcome, effect.sends) == (Outcome.FAILED, [])


def test_a_second_run_is_undone_like_the_first() -> None:
    course = undone(*CHAIN, fails=2)
    course.rerun(NOW_MS + 1000)
    end(course, 0, after_ms=2000)

    effect = end(course, 1, Outcome.FAILED, after_ms=2000)

    assert names(course, effect.sends) == ["s0.compensation"]
    assert end(course, 5, after_ms=3000).outcome is Outcome.FAILED
    assert [step.send for step in course.steps] == [2, 2, 1, 0, 1, 2]


def test_where_compensations_failed_a_rerun_repeats_these_and_nothing_else() -> None:
    course = begun(*CHAIN)
    end(course, 0)
    end(course, 1)
    end(course, 2, Outcome.TIMED_OUT)
    end(course, 3, Outcome.FAILED)
    end(course, 4, Outcome.FAILED)
    end(course, 5)

    effect = course.rerun(NOW_MS + 1000)

    assert names(course, effect.sends) == ["s2.compensation"]
    assert names(course, end(course, 3, after_ms=2000).sends) == ["s1.compensation"]
    ended = end(course, 4, after_ms=2000)
    assert (ended.outcome, ended.sends) == (Outcome.TIMED_OUT, [])
    assert course.rerun(NOW_MS + 3000).sends == [0]


# --- What it costs and shows --------------------------------------------------------------------------------


def test_the_document_of_a_plan_without_compensations_is_as_before() -> None:
    doc = encode_plan(plan_of((), (0,)))

    assert b"compensate" not in doc
    assert plan_id(doc) == "02fb4b72d804b6005d78d9b0beadd6f0"  # as before there were any


def test_the_steps_of_a_plan_without_compensations_are_those_of_the_plan() -> None:
    outline = outline_of(encode_plan(plan_of((), (0,))))

    assert (outline.steps, outline.undoes, outline.needs) == (outline.plan.steps, (), outline.before)


def test_compensations_are_shown_from_when_they_are_wanted() -> None:
    course = begun(*CHAIN)
    before = len(shown(course.outline, course.steps))
    end(course, 0)
    end(course, 1)

    end(course, 2, Outcome.FAILED)

    told = [course.outline.steps[step.step].name for step in shown(course.outline, course.steps)]
    assert (before, told) == (3, ["s0", "s1", "s2", "s1.compensation", "s0.compensation"])


def test_whoever_takes_over_goes_on_undoing_where_the_rows_say() -> None:
    course = begun(*CHAIN)
    end(course, 0)
    end(course, 1)
    end(course, 2, Outcome.FAILED)
    other = course_of(course.outline.plan)
    other.steps = [msgspec.structs.replace(step, output=None) for step in course.steps]

    assert names(other, end(other, 4).sends) == ["s0.compensation"]
    assert end(other, 5).outcome is Outcome.FAILED
