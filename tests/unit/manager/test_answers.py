"""What a node's answer means: by Canoa's headers, or by the published words alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from canoa.broker.port import Message
from canoa.errors import PayloadTooLarge, Undecodable
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import StepEnd, StepLost
from canoa.manager.answers import Foreign, Unreadable, refused_result, step_result
from canoa.wire import result, sapparchi

NOW_MS = 1_700_000_000_000
URN = "urn:sapparchi:Action:shop.resize"


def read(data: str = "42", *, request_id: str = "order.7.0.2.3", **headers: Any) -> StepEnd | StepLost:
    names = {"status": sapparchi.STATUS, "started": result.STARTED, "ended": sapparchi.ENDED, "node": result.NODE}
    body = sapparchi.encode(sapparchi.NodeMessage(action_to=URN, request_id=request_id, message_data=data))
    message = Message(body=body, headers={names[name]: value for name, value in headers.items()})
    return step_result(message, NOW_MS, limit_bytes=1000)


def ended(data: str = "42", **headers: Any) -> StepEnd:
    move = read(data, **headers)
    assert isinstance(move, StepEnd)
    return move


def test_it_counts_for_the_attempt_that_its_request_id_names() -> None:
    move = ended()

    assert (move.task_id, move.step, move.attempt, move.send) == ("order.7", 0, 2, 3)


@pytest.mark.parametrize(
    "data", ["42", '"text"', "null", '{"error": "x", "more": 1}', '{"result": 1}', '[{"error": 1}]']
)
def test_without_a_status_it_is_a_success(data: str) -> None:
    move = ended(data)

    assert (move.outcome, move.output, move.error) == (Outcome.OK, data.encode(), None)


@pytest.mark.parametrize(
    ("data", "error"), [('{"error": "no power"}', "no power"), (' {"error": {"code": 7}} ', '{"code":7}')]
)
def test_without_a_status_nothing_but_an_error_is_a_failure(data: str, error: str) -> None:
    move = ended(data)

    assert (move.outcome, move.error) == (Outcome.FAILED, error)


def test_a_status_says_more_than_the_data() -> None:
    assert ended('{"error": "found in the log"}', status="ok").outcome is Outcome.OK
    assert ended('{"error": "too slow"}', status="timed_out").outcome is Outcome.TIMED_OUT
    assert ended("null", status="failed").error == "no reason given"


def test_what_was_given_back_is_no_attempt() -> None:
    move = read(status="returned", node="gw-7")

    assert isinstance(move, StepLost)
    assert move.is_returned
    assert move.why == "gw-7 gave it back"


def test_no_clock_of_another_machine_makes_it_happen_in_the_future() -> None:
    move = ended(started=NOW_MS - 5, ended=NOW_MS + 60_000)

    assert (move.started_ms, move.ended_ms) == (NOW_MS - 5, NOW_MS)


@pytest.mark.parametrize("request_id", ["", "mine", "a.b.c.d", "t.1.2", ".1.2.3", "t.1.2.99999999999", "nul\x00.0.1.1"])
def test_what_nobody_asked_is_foreign(request_id: str) -> None:
    with pytest.raises(Foreign):
        read(request_id=request_id)


@pytest.mark.parametrize("data", ["", "{", "nan", "[" * 300 + "]" * 300])
def test_data_that_is_no_json_is_a_failed_attempt_that_says_why(data: str) -> None:
    with pytest.raises(Unreadable, match="cannot be read") as refused:
        read(data, status="ok", started=NOW_MS - 5)

    end = refused.value.end
    assert (end.task_id, end.step, end.attempt, end.send) == ("order.7", 0, 2, 3)
    assert (end.outcome, end.output, end.started_ms) == (Outcome.FAILED, b"null", NOW_MS - 5)
    assert end.error == str(refused.value)


@pytest.mark.parametrize("status", ["retried", "great", "", 7, ["ok"], {"ok": 1}])
def test_a_status_that_is_no_end_is_malformed(status: Any) -> None:
    with pytest.raises(Undecodable):
        read(status=status)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"requestID": 7}', b"[" * 5000])
def test_a_body_that_is_no_message_is_malformed(body: bytes) -> None:
    with pytest.raises(Undecodable):
        step_result(Message(body=body), NOW_MS, limit_bytes=10_000)


def test_the_limit_is_of_the_data_and_not_of_its_quoting() -> None:
    most = msgspec.json.encode("x" * 998).decode()

    assert ended(most).output == most.encode()
    with pytest.raises(PayloadTooLarge):
        read(msgspec.json.encode("x" * 999).decode())


# --- What cannot be taken ----------------------------------------------------------------------------------


def refused(body: bytes, **said: Any) -> StepEnd | None:
    return refused_result(Message(body=body, **said), Undecodable("no good"), NOW_MS, limit_bytes=1000)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"requestID": "order.7.0.2.3"}', {}),
        (b'{"requestID": "order.7.0.2.3", "messageData": {"not": "text"}}', {}),
        (b'{"messageData": "' + b"x" * 1_000_000 + b'", "requestID": "order.7.0.2.3"}', {}),
        (b'{"requestID": "order.7.0.2.3"}', {"content_encoding": "UTF-8"}),
        (b"{", {"message_id": "order.7.0.2.3"}),
        (b"no gzip", {"content_encoding": "gzip", "correlation_id": "order.7.0.2.3"}),
    ],
)
def test_whatever_names_its_request_ends_that_attempt_and_says_why(body: bytes, said: dict[str, Any]) -> None:
    move = refused(body, **said)

    assert move is not None
    assert (move.task_id, move.step, move.attempt, move.send) == ("order.7", 0, 2, 3)
    assert move.outcome is Outcome.REFUSED
    assert "no good" in (move.error or "")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"requestID": "mine"}', b'{"requestID": "nul\\u0000.0.1.1"}', b"[" * 5000]
)
def test_what_names_no_request_of_ours_ends_nothing(body: bytes) -> None:
    assert refused(body) is None


def test_a_body_counts_before_the_message_that_carries_it() -> None:
    assert refused(b'{"requestID": "mine"}', message_id="order.7.0.2.3") is None


def test_an_answered_canary_is_no_attempts_answer_and_says_whose_it_is() -> None:
    request_id = sapparchi.canary_id("gw.1.2.3", "cafe")

    with pytest.raises(Foreign) as foreign:
        read(request_id=request_id)

    assert foreign.value.request_id == request_id
