"""The client of the HTTP API: what it asks, what it makes of answers, and what it does when none comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.client.api_double import ApiDouble, api_double

from canoa.client.door import Order, result_of
from canoa.client.remote import BATCH, BATCH_BYTES, Remote
from canoa.errors import (
    ActionFailed,
    ApiUnreachable,
    CanoaError,
    DeliveryUnknown,
    SettingError,
    StoreFull,
    TaskCancelled,
    UnknownTask,
    WrongUse,
)
from canoa.recorder.views import SubmitOptions
from canoa.testing import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK: dict[str, Any] = {
    "id": "t1",
    "action": "shop.resize",
    "state": "ended",
    "outcome": "ok",
    "submitted_at": "2026-07-01T08:00:00Z",
    "due_at": None,
    "started_at": "2026-07-01T08:00:01Z",
    "ended_at": "2026-07-01T08:00:02Z",
    "attempts": 1,
    "node_id": "n1",
    "error": None,
    "progress": None,
    "progress_text": None,
    "run": 0,
}


@pytest.fixture
def api() -> Iterator[ApiDouble]:
    with api_double() as double:
        yield double


@pytest.fixture
def remote(api: ApiDouble) -> Iterator[Remote]:
    with Remote(api.url, "a-token") as remote:
        yield remote


# --- Asking -------------------------------------------------------------------------------------------


def test_a_question_carries_the_token_and_its_answer_has_types(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({**TASK, "since": "a newer version"})

    task = remote.task("a/b c")

    assert (task.action, task.attempts) == ("shop.resize", 1)
    assert task.submitted_at.isoformat() == "2026-07-01T08:00:00+00:00"
    (asked,) = api.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/tasks/a%2Fb%20c")
    assert asked.authorization == "Bearer a-token"


def test_a_site_is_named_only_where_there_is_one_since_older_managers_know_of_none(
    api: ApiDouble, remote: Remote
) -> None:
    explained: dict[str, Any] = {"action": "shop.resize", "routing": "round_robin", "node_id": None, "considered": []}
    api.will_answer(explained)
    api.will_answer(explained)

    remote.explain("shop.resize")
    remote.explain("shop.resize", site="natal")

    queries = [asked.path.partition("?")[2] for asked in api.asked]
    assert queries == ["size_bytes=0", "size_bytes=0&site=natal"]


def test_filters_that_are_not_given_are_not_sent(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({"tasks": [TASK], "next": "more"})

    page = remote.tasks(action="shop.resize", limit=7)

    assert (len(page.tasks), page.next) == (1, "more")
    assert api.asked[0].path == "/api/v1/tasks?action=shop.resize&limit=7"


def test_arguments_travel_as_they_were_given(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({"id": "t1", "action": "shop.resize", "is_new": True}, 201)

    order = Order(
        action="shop.resize",
        arguments=msgspec.Raw(b'{"n": 123456789012345678901234567890}'),
        options=SubmitOptions(after=5),
    )
    (done,) = remote.submit([order])

    assert (done.id, done.is_new) == ("t1", True)
    assert api.asked[0].body["arguments"] == {"n": 123456789012345678901234567890}
    assert api.asked[0].body["options"]["after"] == 5


def test_many_orders_go_in_parts_that_the_api_takes(api: ApiDouble, remote: Remote) -> None:
    large = Order(action="shop.resize", arguments=msgspec.Raw(b'{"x":"%s"}' % (b"x" * (BATCH_BYTES // 2))))
    orders = [large, large, *[Order(action="shop.resize")] * (BATCH + 1)]
    sizes = [1, BATCH, 2]
    for size in sizes:
        api.will_answer([{"id": "t", "action": "shop.resize"}] * size, 201)

    assert len(remote.submit(orders)) == len(orders)

    assert [len(asked.body["requests"]) for asked in api.asked] == sizes


def test_questions_share_a_connection(api: ApiDouble, remote: Remote) -> None:
    for _ in range(3):
        api.will_answer(TASK)
        remote.task("t1")

    assert len({asked.connection for asked in api.asked}) == 1


# --- Results ------------------------------------------------------------------------------------------


def test_a_result_is_raised_or_returned_as_its_caller_would_have_heard_it(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({"task": TASK, "result": [1, 2]})
    assert result_of(remote.result("t1", wait_s=2)) == [1, 2]
    assert api.asked[0].path == "/api/v1/tasks/t1/result?wait=2"

    failed = {**TASK, "outcome": "failed", "error": "ValueError: no stock", "attempts": 3}
    api.will_answer({"task": failed, "error_type": "ValueError", "traceback": "Traceback: here"})
    with pytest.raises(ActionFailed) as raised:
        result_of(remote.result("t1"))
    assert str(raised.value) == "ValueError: no stock"
    assert (raised.value.error_type, raised.value.attempts, raised.value.task_id) == ("ValueError", 3, "t1")
    assert raised.value.remote_traceback == "Traceback: here"

    api.will_answer({"task": {**TASK, "outcome": "cancelled", "error": "cancelled"}})
    with pytest.raises(TaskCancelled):
        result_of(remote.result("t1"))


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        (404, "UnknownTask", UnknownTask),
        (507, "StoreFull", StoreFull),
        (422, "TypeMismatch", WrongUse),
        (500, "InternalError", CanoaError),
        (404, "sys", WrongUse),
    ],
)
def test_a_refusal_is_the_error_that_the_desk_raised(
    api: ApiDouble, remote: Remote, status: int, told: str, kind: type[CanoaError]
) -> None:
    api.will_answer({"error": {"type": told, "message": "the very words"}}, status)

    with pytest.raises(kind) as raised:
        remote.task("t1")

    assert type(raised.value) is kind
    assert str(raised.value) == "the very words"


def test_a_wrong_token_names_the_remedy_and_not_the_token(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({"error": {"type": "Unauthorized", "message": "no token"}}, 401)

    with pytest.raises(SettingError, match="CANOA_API_TOKEN") as raised:
        remote.task("t1")

    assert "a-token" not in str(raised.value)


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[]", b'{"error": "no"}'])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_somebody_elses_answer_is_told_as_such(api: ApiDouble, remote: Remote, status: int, body: bytes) -> None:
    api.will_answer(body, status)

    with pytest.raises(CanoaError, match="API"):
        remote.task("t1")


# --- Links --------------------------------------------------------------------------------------------


def test_nobody_there_is_told_with_the_address() -> None:
    port = free_port()

    with Remote(f"http://127.0.0.1:{port}/", "a-token") as remote, pytest.raises(ApiUnreachable, match=f":{port}"):
        remote.task("t1")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8420", "ftp://here", "http://", "http://here:port", "http://here:99999"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="write http://"):
        Remote(url, "a-token")


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(api: ApiDouble, remote: Remote) -> None:
    api.closes_after_answer = True
    for _ in range(2):
        api.will_answer(TASK)

        assert remote.task("t1").id == "t1"

    assert len({asked.connection for asked in api.asked}) == 2


def test_a_submit_whose_answer_got_lost_is_not_repeated(api: ApiDouble, remote: Remote) -> None:
    api.will_answer(TASK)
    remote.task("t1")
    api.hangs_up_before_answer = True

    with pytest.raises(DeliveryUnknown):
        remote.submit([Order(action="shop.resize")])

    assert [asked.method for asked in api.asked] == ["GET", "POST"]


# --- Events -------------------------------------------------------------------------------------------


def test_events_are_read_from_the_stream_until_it_ends(api: ApiDouble, remote: Remote) -> None:
    told = '{"kind":"progress","task_id":"t1","action":"shop.resize","at":"2026-07-01T08:00:00Z","progress":0.5}'
    half, rest = told.split('"action"')
    api.will_answer(
        f": listening\n\nid: 1\nevent: progress\ndata: {told}\n\n: still here\n\nid: 2\r\ndata:{half}\r\n"
        f'data: "action"{rest}\r\n\r\nid: 3\ndata: cut off'.encode()
    )

    events = list(remote.events(task_id="t1"))

    assert [event.progress for event in events] == [0.5, 0.5]
    assert api.asked[0].path == "/api/v1/events?task=t1"


def test_events_of_one_node_are_asked_for(api: ApiDouble, remote: Remote) -> None:
    api.will_answer(b": listening\n\n")

    assert list(remote.events(node_id="gw-7")) == []
    assert api.asked[0].path == "/api/v1/events?node=gw-7"


def test_events_that_are_refused_say_why(api: ApiDouble, remote: Remote) -> None:
    api.will_answer({"error": {"type": "UnknownTask", "message": "no such task"}}, 404)

    with pytest.raises(UnknownTask, match="no such task"):
        list(remote.events(task_id="t1"))
