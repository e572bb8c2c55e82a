"""The rules of steps, one by one. Whole tasks under any order of events are in `test_steps_properties.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.execution.course_words import NOW_MS, Course, answer, course_of, due, lost, plan_of, request

from canoa.execution.outcome import Outcome
from canoa.execution.policy import Backoff
from canoa.execution.step_moves import Verdict
from canoa.execution.step_records import BLOCKED, ENDED, MAX_STORY, SENT, SKIPPED, WAITING
from canoa.execution.step_rules import LOOK_MS, QUICK_RESENDS
from canoa.execution.step_settings import StepSettings

if TYPE_CHECKING:
    from canoa.execution.step_rules import Effect

HOUR_MS = 3_600_000


def begun(*after: tuple[int, ...], **fields: Any) -> Course:
    course = course_of(plan_of(*(after or ((),))), **fields)
    course.begin(NOW_MS)
    return course


def states(course: Course) -> list[str]:
    return [step.state for step in course.steps]


def end(course: Course, at: int = 0, outcome: Outcome = Outcome.OK, *, after_ms: int = 100) -> Effect:
    return course.end(answer(course, at, outcome, now_ms=NOW_MS + after_ms))


# --- Order --------------------------------------------------------------------------------------------------


def test_what_waits_for_nothing_is_sent_at_once_and_the_rest_is_blocked() -> None:
    course = course_of(plan_of((), (), (0, 1)))

    effect = course.begin(NOW_MS)

    assert effect.sends == [0, 1]
    assert states(course) == [SENT, SENT, BLOCKED]


def test_a_step_is_sent_when_the_last_it_waits_for_has_succeeded() -> None:
    course = begun((), (), (0, 1))

    first, second = end(course, 1), end(course, 0)

    assert (first.sends, second.sends) == ([], [2])


def test_what_waits_for_a_failed_step_is_skipped_down_to_the_last() -> None:
    course = begun((), (), (0,), (2,), (1,))

    end(course, 0, Outcome.FAILED)
    effect = end(course, 1)

    assert effect.sends == [4]
    assert states(course) == [ENDED, ENDED, SKIPPED, SKIPPED, SENT]


def test_a_long_chain_is_skipped_without_recursion() -> None:
    chain = [(), *((at,) for at in range(2000))]
    course = begun(*chain)

    assert end(course, 0, Outcome.FAILED).outcome is Outcome.FAILED


def test_a_task_ends_with_the_outcome_of_the_step_that_failed_first() -> None:
    course = begun((), ())

    end(course, 1, Outcome.REFUSED, after_ms=10)
    effect = end(course, 0, Outcome.FAILED, after_ms=20)

    assert effect.outcome is Outcome.REFUSED


# --- Retries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.EXPIRED, Outcome.RETRIED])
def test_these_ends_are_tried_again(outcome: Outcome) -> None:
    course = begun(retries=1)

    effect = end(course, 0, outcome)

    assert effect.outcome is None
    assert (course.steps[0].state, course.steps[0].attempt) == (WAITING, 2)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.POISONED, Outcome.CANCELLED])
def test_these_ends_are_not(outcome: Outcome) -> None:
    course = begun(retries=5)

    assert end(course, 0, outcome).outcome is outcome


def test_an_end_that_the_action_calls_final_is_not_tried_again() -> None:
    course = begun(retries=5)
    move = msgspec.structs.replace(answer(course, 0, Outcome.FAILED), is_final=True)

    assert course.end(move).outcome is Outcome.FAILED


def test_a_retry_waits_as_the_backoff_says() -> None:
    settings = StepSettings(backoff=Backoff(first_s=2.0))
    course = begun(retries=1, settings=settings, random=lambda: 0.5)

    effect = end(course, 0, Outcome.FAILED, after_ms=0)

    assert effect.due_ms == [NOW_MS + 2000]
    assert course.due(due(course, 0)).sends == [0]


def test_the_plan_says_more_than_the_node() -> None:
    course = course_of(plan_of((), retries=0, timeout_s=1.0), retries=9, timeout_s=99.0)

    effect = course.begin(NOW_MS)

    assert effect.due_ms == [NOW_MS + 11_000]
    assert end(course, 0, Outcome.FAILED).outcome is Outcome.FAILED


@pytest.mark.parametrize(("retries", "timeout_s"), [(-3, -1.0), (0, 0.0), (10**9, 1e300)])
def test_whatever_a_node_claims_about_its_limits_breaks_nothing(retries: int, timeout_s: float) -> None:
    course = begun(retries=retries, timeout_s=timeout_s)

    limit_ms = course.steps[0].limit_ms
    assert limit_ms is not None
    assert NOW_MS < limit_ms < 2**60
    end(course, 0, Outcome.FAILED)


# --- Nodes --------------------------------------------------------------------------------------------------


def test_the_looks_for_a_node_come_less_and_less_often() -> None:
    course = begun(nodes=())
    gaps = []
    for _ in range(12):
        now_ms = course.steps[0].due_ms or 0
        course.due(due(course, 0))
        gaps.append((course.steps[0].due_ms or 0) - now_ms)

    assert gaps[:5] == [200, 400, 800, 1600, 3200]
    assert set(gaps[5:]) == {5000}


def test_a_lost_step_avoids_the_nodes_that_lost_it() -> None:
    course = begun(nodes=("a", "b", "c"))
    seen = [course.steps[0].node_id]
    for _ in range(2):
        course.lose(lost(course, 0))
        seen.append(course.steps[0].node_id)

    assert sorted(filter(None, seen)) == ["a", "b", "c"]
    assert course.steps[0].attempt == 1


def test_losses_in_quick_succession_slow_down() -> None:
    course = begun(nodes=("a",))

    effects = [course.lose(lost(course, 0)) for _ in range(QUICK_RESENDS + 1)]

    assert [effect.sends for effect in effects] == [[0]] * QUICK_RESENDS + [[]]
    assert course.steps[0].state == WAITING


def test_a_step_that_takes_its_nodes_along_is_poison() -> None:
    settings = StepSettings(max_losses=2)
    course = begun(nodes=("a", "b"), settings=settings, timeout_s=None)
    now_ms = NOW_MS

    outcomes = []
    for _ in range(3):
        now_ms += 60_000
        outcomes.append(course.lose(lost(course, 0, now_ms=now_ms)).outcome)

    assert outcomes == [None, None, Outcome.POISONED]


def test_a_step_that_is_only_lost_on_its_way_expires() -> None:
    course = begun(nodes=("a",))
    now_ms = NOW_MS
    for _ in range(10_000):
        if not course.is_open:
            break
        if course.steps[0].state == SENT:
            course.lose(lost(course, 0, now_ms=now_ms))
        else:
            now_ms = course.steps[0].due_ms or 0
            course.due(due(course, 0))

    assert (course.steps[0].outcome, len(course.steps[0].story)) == ("expired", MAX_STORY)
    assert HOUR_MS <= now_ms - NOW_MS < HOUR_MS + 10_000


def test_a_node_that_was_down_for_long_is_still_sent_what_waited_for_it() -> None:
    course = begun(nodes=())
    course.route.nodes = ["a"]

    assert course.due(due(course, 0, now_ms=NOW_MS + 5 * HOUR_MS)).sends == [0]


def test_a_step_that_waited_while_no_manager_looked_waits_on() -> None:
    course = begun(nodes=())
    back_ms = course.route.start_ms = NOW_MS + 5 * HOUR_MS

    course.due(due(course, 0, now_ms=back_ms))
    course.due(due(course, 0, now_ms=back_ms + HOUR_MS - 1))
    assert course.steps[0].state == WAITING

    assert course.due(due(course, 0, now_ms=back_ms + HOUR_MS)).outcome is Outcome.EXPIRED


def test_a_route_knows_how_often_the_step_can_still_fail() -> None:
    by_plan, by_node = course_of(plan_of((), retries=2)), course_of(plan_of(()), retries=1)
    left = []
    for course in (by_plan, by_node):
        course.begin(NOW_MS)
        left.append(course.route.retries_left)
        end(course, 0, Outcome.FAILED)
        course.due(due(course, 0))
        left.append(course.route.retries_left)

    assert left == [2, 1, None, 0]


# --- Time ---------------------------------------------------------------------------------------------------


def test_a_timer_is_never_further_ahead_than_the_next_look() -> None:
    course = begun(timeout_s=10 * 3600.0)

    early = course.due(due(course, 0))

    assert early.verdict is Verdict.TAKEN
    assert early.due_ms == [NOW_MS + 2 * LOOK_MS]
    assert course.steps[0].state == SENT


def test_a_step_behind_others_has_its_time_from_the_last_answer_of_its_node() -> None:
    course = begun()
    course.route.last_answers_ms["a"] = answered_ms = NOW_MS + 35_000

    waits_on = course.due(due(course, 0))
    too_late = course.due(due(course, 0))

    assert (waits_on.step_outcome, waits_on.due_ms) == (None, [answered_ms + 40_000])
    assert too_late.step_outcome == "timed_out"


def test_a_node_that_answers_everything_else_does_not_keep_a_step_for_ever() -> None:
    course = begun()
    now_ms = NOW_MS
    while course.is_open and now_ms < NOW_MS + 3 * HOUR_MS:
        now_ms = course.steps[0].due_ms or 0
        course.route.last_answers_ms["a"] = now_ms
        course.due(due(course, 0))

    assert (course.steps[0].outcome, now_ms) == ("timed_out", NOW_MS + HOUR_MS + 40_000)


def test_answers_of_other_nodes_say_nothing() -> None:
    course = begun()
    course.route.last_answers_ms["b"] = NOW_MS + 35_000

    assert course.due(due(course, 0)).step_outcome == "timed_out"


def test_an_answer_that_came_while_no_manager_looked_still_counts() -> None:
    course = begun()
    back_ms = course.route.start_ms = NOW_MS + HOUR_MS

    course.due(due(course, 0, now_ms=back_ms))

    assert end(course, 0, after_ms=HOUR_MS + 5).outcome is Outcome.OK


def test_what_has_not_left_for_its_node_does_not_time_out() -> None:
    course = begun(retries=3)

    unsent = course.due(due(course, 0), is_unsent=True)
    sent = course.due(due(course, 0))

    assert (unsent.step_outcome, unsent.due_ms) == (None, [NOW_MS + 80_000])
    assert (sent.step_outcome, course.steps[0].attempt) == ("timed_out", 2)


def test_a_step_without_a_time_limit_is_looked_at_and_left_alone() -> None:
    course = begun(timeout_s=None)

    assert course.due(due(course, 0)).due_ms == [NOW_MS + 2 * LOOK_MS]
    assert course.steps[0].state == SENT


def test_a_clock_that_has_gone_back_gives_an_attempt_its_time_again() -> None:
    course = begun()
    before_ms = NOW_MS - 48 * HOUR_MS

    assert course.due(due(course, 0, now_ms=before_ms)).due_ms == [before_ms + 40_000]
    assert course.due(due(course, 0)).step_outcome == "timed_out"


def test_a_wait_set_by_a_clock_that_has_gone_back_is_over() -> None:
    course = begun(retries=1)
    end(course, 0, Outcome.FAILED)

    assert course.due(due(course, 0, now_ms=NOW_MS - 48 * HOUR_MS)).sends == [0]


def test_a_retry_waits_as_long_as_it_was_to_after_its_clock_was_set_back() -> None:
    course = course_of(plan_of((), retries=1))
    course.begin(NOW_MS)
    course.end(answer(course, 0, Outcome.FAILED))
    wait_ms = (course.steps[0].ready_ms or 0) - NOW_MS
    earlier_ms = NOW_MS - HOUR_MS

    course.due(due(course, 0, now_ms=earlier_ms, back_ms=HOUR_MS))
    assert course.steps[0].due_ms == course.steps[0].ready_ms == earlier_ms + wait_ms
    effect = course.due(due(course, 0))

    assert effect.sends == [0]


def test_an_attempt_that_is_out_has_its_whole_time_after_its_clock_was_set_back() -> None:
    course = course_of(plan_of(()), timeout_s=30.0)
    course.begin(NOW_MS)
    span_ms = (course.steps[0].due_ms or 0) - NOW_MS
    earlier_ms = NOW_MS + 10_000 - HOUR_MS

    effect = course.due(due(course, 0, now_ms=earlier_ms, back_ms=HOUR_MS))

    assert effect.cancel == ()
    assert course.steps[0].due_ms == earlier_ms + span_ms


def test_a_step_that_no_node_can_have_is_looked_at_again_after_its_clock_was_set_back() -> None:
    course = course_of(plan_of(()), nodes=())
    course.begin(NOW_MS)
    course.route.nodes = ["a"]

    effect = course.due(due(course, 0, now_ms=NOW_MS - HOUR_MS, back_ms=HOUR_MS))

    assert effect.sends == [0]


def test_a_caller_s_own_time_holds_whatever_happens_to_the_clock() -> None:
    course = course_of(plan_of(()))
    course.begin(NOW_MS, not_before_ms=NOW_MS + 5_000)

    effect = course.due(due(course, 0, now_ms=NOW_MS - HOUR_MS, back_ms=HOUR_MS))

    assert effect.sends == []
    assert course.steps[0].ready_ms == NOW_MS + 5_000


def test_a_look_before_its_time_sends_nothing() -> None:
    course = course_of(plan_of(()))
    course.begin(NOW_MS, not_before_ms=NOW_MS + 2 * LOOK_MS)

    effect = course.due(due(course, 0, now_ms=NOW_MS + 1))

    assert (effect.sends, effect.due_ms) == ([], [NOW_MS + 1 + LOOK_MS])


# --- Again --------------------------------------------------------------------------------------------------


def test_request_ids_of_a_rerun_are_new() -> None:
    course = begun(retries=1)
    end(course, 0, Outcome.REFUSED)
    old = request(course, 0)

    course.rerun(NOW_MS + 500)

    assert request(course, 0) != old
    assert (course.steps[0].attempt, course.steps[0].send) == (1, 2)


def test_a_rerun_does_not_avoid_the_nodes_of_the_run_before() -> None:
    course = begun(nodes=("a",), retries=1)
    course.due(due(course, 0))  # times out
    course.due(due(course, 0))
    course.due(due(course, 0))
    assert not course.is_open

    course.rerun(NOW_MS + HOUR_MS)

    assert course.route.avoided == frozenset()
