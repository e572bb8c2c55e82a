"""How a task ended reaches its caller as the right exception, bounded, whatever the worker said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import golden

from canoa import errors
from canoa.broker.port import Message
from canoa.execution.outcome import Outcome
from canoa.vocabulary import TaskId
from canoa.wire import result

TASK_ID = TaskId("019a88f2d4ca7abc8def0123456789ab")
BROKEN = result.failure("no such file", error_type="OSError", attempts=3, traceback="Traceback ...")


def test_results_are_written_as_ever() -> None:
    success = result.success_message(TASK_ID, b'"a-80.png"', "application/json", None)

    assert success == golden("result_ok")
    assert result.failure_message(TASK_ID, Outcome.FAILED, BROKEN) == golden("result_failed")


def test_a_dead_letter_is_the_task_with_why_and_where() -> None:
    letter = result.dead_letter(
        golden("task_retried"),
        reason=Outcome.FAILED,
        what=BROKEN,
        node="node-1",
        origin="canoa.action.shop.resize",
        now_s=1763237740.0,
    )

    assert letter == golden("dead_letter")


def test_a_dead_letter_does_not_expire_and_forgets_the_brokers_notes() -> None:
    dying = Message(body=b"", message_id="a", expiration_s=1.0, persistent=False, headers={"x-death": [], "kept": 1})

    letter = result.dead_letter(dying, reason=Outcome.REFUSED, what=BROKEN, node="n", origin="q", now_s=0)

    assert letter.expiration_s is None
    assert letter.persistent
    assert "x-death" not in letter.headers
    assert letter.headers["kept"] == 1


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.FAILED, errors.ActionFailed),
        (Outcome.TIMED_OUT, errors.ActionTimedOut),
        (Outcome.CANCELLED, errors.TaskCancelled),
        (Outcome.EXPIRED, errors.TaskExpired),
        (Outcome.POISONED, errors.TaskPoisoned),
        (Outcome.REFUSED, errors.TaskRefused),
    ],
)
def test_each_end_has_its_own_exception(outcome: Outcome, kind: type[errors.TaskEnded]) -> None:
    error = result.error_from(result.failure_message(TASK_ID, outcome, BROKEN), TASK_ID)

    assert type(error) is kind
    assert error.task_id == TASK_ID
    assert "no such file" in str(error)


def test_a_failure_keeps_the_workers_words() -> None:
    error = result.error_from(golden("result_failed"), TASK_ID)

    assert isinstance(error, errors.ActionFailed)
    assert str(error) == "OSError: no such file"
    assert (error.error_type, error.attempts, error.remote_traceback) == ("OSError", 3, "Traceback ...")


@given(st.text(max_size=5000), st.text(max_size=300), st.text(max_size=20_000))
def test_what_a_worker_says_is_bounded_and_arrives(message: str, error_type: str, traceback: str) -> None:
    what = result.failure(message, error_type=error_type, traceback=traceback)

    answer = result.failure_message(TASK_ID, Outcome.FAILED, what)

    error = result.error_from(answer, TASK_ID)
    assert isinstance(error, errors.ActionFailed)
    assert traceback.endswith(error.remote_traceback)
    assert len(answer.body) < 12 * (result.MAX_ERROR_CHARS + result.MAX_TRACEBACK_CHARS + 300)


@given(st.binary(max_size=100), st.sampled_from(["failed", "ok", "nonsense", None]), st.none() | st.text(max_size=10))
def test_any_answer_that_is_no_failure_still_ends_the_task(body: bytes, kind: str | None, content: str | None) -> None:
    error = result.error_from(Message(body=body, type=kind, content_type=content), TASK_ID)

    assert isinstance(error, errors.TaskEnded)
    assert error.task_id == TASK_ID
