"""Every task ends, runs no more often than its policy allows, and only what crashed alone is called poison."""

from __future__ import annotations

from typing import assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.outcome import Outcome
from canoa.execution.policy import Policy
from canoa.execution.rules import (
    Cancelled,
    End,
    Expire,
    Fail,
    Finish,
    Intent,
    Poison,
    Raised,
    Received,
    Recount,
    Refused,
    Retry,
    Run,
    Skip,
    Succeeded,
    TimedOut,
    Wait,
    on_delivery,
    on_end,
)

NOW = 1000.0
times = st.floats(0, 2000)
chance = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    Policy,
    timeout_s=st.none() | st.floats(0.001, 1e6),
    retries=st.integers(0, 20),
    max_crashes=st.integers(1, 10),
)
tasks = st.builds(
    Received,
    attempt=st.integers(1, 21),
    crashes=st.integers(0, 20),
    redelivered=st.booleans(),
    is_suspect=st.booleans(),
    due_s=st.none() | times,
    deadline_s=st.none() | times,
    is_cancelled=st.booleans(),
)
ends: st.SearchStrategy[End] = st.sampled_from(
    [Succeeded(), Raised(True), Raised(False), TimedOut(), Cancelled(), Refused()]
)


@pytest.mark.parametrize(
    ("max_crashes", "task", "intent"),
    [
        (3, Received(is_cancelled=True), Skip()),
        (1, Received(is_cancelled=True, redelivered=True, is_suspect=True, crashes=9, deadline_s=0), Skip()),
        (3, Received(deadline_s=NOW), Expire()),
        (1, Received(deadline_s=NOW - 1, redelivered=True, is_suspect=True, crashes=9), Expire()),
        (3, Received(deadline_s=NOW + 0.001), Run(False, 5.0)),
        (3, Received(due_s=NOW + 2.5), Wait(2.5)),
        (1, Received(due_s=NOW + 2.5, redelivered=True, is_suspect=True, crashes=9), Wait(2.5)),
        (3, Received(due_s=NOW + 2.5, is_cancelled=True), Skip()),
        (3, Received(due_s=NOW + 2.5, deadline_s=NOW), Expire()),
        (3, Received(due_s=NOW), Run(False, 5.0)),
        (3, Received(), Run(False, 5.0)),
        (3, Received(crashes=1, attempt=4), Run(False, 5.0)),
        (3, Received(is_suspect=True, crashes=2), Run(True, 5.0)),
        (1, Received(redelivered=True), Poison(1)),
        (1, Received(redelivered=True, is_suspect=True), Poison(1)),
        (2, Received(redelivered=True), Recount(1, as_suspect=False)),
        (3, Received(redelivered=True), Recount(1, as_suspect=False)),
        (2, Received(redelivered=True, crashes=1), Recount(2, as_suspect=True)),
        (3, Received(redelivered=True, crashes=1), Recount(2, as_suspect=True)),
        (3, Received(redelivered=True, crashes=7), Recount(8, as_suspect=True)),
        (4, Received(redelivered=True, crashes=2, is_suspect=True), Recount(3, as_suspect=True)),
        (3, Received(redelivered=True, crashes=0, is_suspect=True), Recount(1, as_suspect=True)),
        (3, Received(redelivered=True, crashes=2, is_suspect=True), Poison(3)),
        (2, Received(redelivered=True, crashes=2, is_suspect=True), Poison(3)),
        (10, Received(redelivered=True, crashes=7), Recount(8, as_suspect=False)),
        (10, Received(redelivered=True, crashes=8), Recount(9, as_suspect=True)),
        (10, Received(redelivered=True, crashes=9, is_suspect=True), Poison(10)),
    ],
)
def test_each_row_of_the_table(max_crashes: int, task: Received, intent: Intent) -> None:
    assert on_delivery(Policy(timeout_s=5.0, max_crashes=max_crashes), task, NOW) == intent


@given(policies, tasks, times)
def test_every_delivery_gets_a_legal_intent(policy: Policy, task: Received, now_s: float) -> None:
    intent = on_delivery(policy, task, now_s)

    match intent:
        case Skip():
            assert task.is_cancelled
        case Expire():
            assert task.deadline_s is not None
            assert task.deadline_s <= now_s
        case Wait(wait_s):
            assert task.due_s is not None
            assert 0 < wait_s == task.due_s - now_s
        case Run(alone, time_limit_s):
            assert task.due_s is None or task.due_s <= now_s
            assert not task.redelivered
            assert alone == task.is_suspect
            assert time_limit_s == policy.timeout_s
        case Recount(crashes, as_suspect):
            assert task.redelivered
            assert crashes == task.crashes + 1
            assert as_suspect >= task.is_suspect  # a suspect stays one
        case Poison(crashes):
            assert task.redelivered
            assert crashes >= policy.max_crashes
            assert task.is_suspect or policy.max_crashes == 1
        case _:
            assert_never(intent)


@given(st.integers(1, 50))
def test_what_crashes_every_time_is_poison_within_one_more_than_max_crashes(max_crashes: int) -> None:
    policy = Policy(max_crashes=max_crashes)
    crashes, is_suspect, runs_alone = 0, False, 0

    for redelivery in range(1, max_crashes + 2):
        assert isinstance(on_delivery(policy, Received(crashes=crashes, is_suspect=is_suspect), NOW), Run)
        runs_alone += is_suspect
        intent = on_delivery(policy, Received(crashes=crashes, is_suspect=is_suspect, redelivered=True), NOW)
        if isinstance(intent, Poison):
            assert intent.crashes == redelivery == max(max_crashes, 3 if max_crashes == 2 else 0)
            assert runs_alone >= 1 or max_crashes == 1
            return
        assert isinstance(intent, Recount)
        assert intent.crashes > crashes
        crashes, is_suspect = intent.crashes, intent.as_suspect
    pytest.fail("never poisoned")


@pytest.mark.parametrize(
    ("end", "attempt", "intent"),
    [
        (Succeeded(), 1, Finish()),
        (Succeeded(), 9, Finish()),
        (Cancelled(), 1, Fail(Outcome.CANCELLED)),
        (Refused(), 1, Fail(Outcome.REFUSED)),
        (Raised(retryable=False), 1, Fail(Outcome.FAILED)),
        (Raised(), 1, Retry(2, 1.0)),
        (TimedOut(), 2, Retry(3, 2.0)),
        (Raised(), 3, Fail(Outcome.FAILED)),
        (TimedOut(), 3, Fail(Outcome.TIMED_OUT)),
    ],
)
def test_each_end_of_an_attempt_with_two_retries(end: End, attempt: int, intent: object) -> None:
    assert on_end(Policy(retries=2), attempt, end, NOW, deadline_s=None, rand=0.5) == intent


def test_a_retry_that_would_start_at_the_deadline_is_not_made() -> None:
    policy = Policy(retries=5)

    assert on_end(policy, 1, Raised(), NOW, deadline_s=NOW + 1.0, rand=0.5) == Fail(Outcome.FAILED)
    assert on_end(policy, 1, TimedOut(), NOW, deadline_s=NOW + 1.0, rand=0.5) == Fail(Outcome.TIMED_OUT)
    assert on_end(policy, 1, Raised(), NOW, deadline_s=NOW + 1.1, rand=0.5) == Retry(2, 1.0)


@given(policies, st.integers(1, 30), ends, times, st.none() | times, chance)
def test_every_end_gets_a_legal_intent(
    policy: Policy, attempt: int, end: End, now_s: float, deadline_s: float | None, rand: float
) -> None:
    intent = on_end(policy, attempt, end, now_s, deadline_s=deadline_s, rand=rand)

    match intent:
        case Finish():
            assert isinstance(end, Succeeded)
        case Retry(next_attempt, delay_s):
            assert end in (Raised(True), TimedOut())
            assert next_attempt == attempt + 1 <= policy.retries + 1
            assert deadline_s is None or now_s + delay_s < deadline_s
        case Fail():
            assert not isinstance(end, Succeeded)
        case _:
            assert_never(intent)


@given(policies, st.sampled_from([Raised(), TimedOut()]), chance)
def test_what_always_fails_is_tried_once_and_as_often_as_there_are_retries(
    policy: Policy, end: End, rand: float
) -> None:
    attempts = 1
    while isinstance(intent := on_end(policy, attempts, end, NOW, deadline_s=None, rand=rand), Retry):
        attempts = intent.attempt

    assert attempts == policy.retries + 1
