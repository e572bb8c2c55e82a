"""A dead letter's way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message
from canoa.execution.outcome import Outcome
from canoa.vocabulary import TaskId
from canoa.wire import letter, result, task

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST = Message(
    body=b"{}",
    content_type="application/json",
    headers={"mine": "kept", task.RETRIES: 3, task.IDEMPOTENCY_KEY: "k", "traceparent": "00-1-2-01"},
    message_id="a",
    priority=4,
)


def dead(headers: Mapping[str, HeaderValue]) -> Message:
    last_try = task.again(FIRST, attempt=4, crashes=1)
    buried = result.dead_letter(
        last_try, reason=Outcome.FAILED, what=result.failure("no"), node="node-1", origin="canoa.action.a", now_s=1.0
    )
    return Message(body=b"{}", headers={**buried.headers, **headers}, message_id="a", priority=4, reply_to="caller")


def test_a_redriven_task_carries_only_what_its_caller_gave_it_and_its_run() -> None:
    noted = dead({task.DEADLINE: 1, result.TRACEBACK: "…", "x-death": [], "x-first-death-queue": "q", task.RUN: 1})

    sent = letter.redriven(noted, task_id=TaskId("a"), run=2, origin="canoa.action.a")

    assert sent.message.headers == {**FIRST.headers, task.RUN: 2}
    assert (sent.message.body, sent.message.priority, sent.message.message_id) == (b"{}", 4, "a")


def test_a_redriven_task_goes_back_where_it_came_from_and_answers_to_the_store() -> None:
    transient = Message(body=b"", persistent=False, expiration_s=5.0, reply_to="caller")

    sent = letter.redriven(transient, task_id=TaskId("a"), run=1, origin="canoa.action.a")

    assert (sent.exchange, sent.key, sent.mandatory) == ("", "canoa.action.a", True)
    assert (sent.message.persistent, sent.message.expiration_s) == (True, None)
    assert (sent.message.reply_to, sent.message.message_id) == (topology.RESULTS, "a")


@pytest.mark.parametrize(
    ("header", "run"), [(None, 0), (0, 0), (3, 3), (-1, 0), ("3", 0), (True, 0), (2**31 - 1, 0), (2**70, 0)]
)
def test_a_run_that_makes_no_sense_is_the_first(header: HeaderValue, run: int) -> None:
    assert letter.run_of(Message(body=b"", headers={task.RUN: header})) == run
    assert letter.run_of(Message(body=b"")) == 0
