"""A task is read as it was sent, whoever sent it; headers that lie are refused by name and value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import golden

from canoa import Canoa
from canoa.action import Options
from canoa.broker.port import HeaderValue, Message
from canoa.client import outgoing
from canoa.errors import Undecodable
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import task, trace
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from canoa.broker.port import Publication

ACTION = ActionName("shop.resize")
TASK_ID = TaskId("019a88f2d4ca7abc8def0123456789ab")
NOW_S = 1763237730.25

headers_of_tasks = st.fixed_dictionaries(
    {},
    optional={
        task.SENT: st.integers(0, task.MAX_MS),
        task.ATTEMPT: st.integers(1, task.MAX_COUNT),
        task.CRASHES: st.integers(0, task.MAX_COUNT),
        task.DEADLINE: st.integers(0, task.MAX_MS),
        task.DUE: st.integers(0, task.MAX_MS),
        task.RETRIES: st.integers(0, task.MAX_COUNT),
        task.TIMEOUT: st.integers(1, task.MAX_MS),
        task.IDEMPOTENCY_KEY: st.text(max_size=255),
    },
)
anything: st.SearchStrategy[HeaderValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OURS = [
    task.SENT,
    task.ATTEMPT,
    task.CRASHES,
    task.DEADLINE,
    task.DUE,
    task.RETRIES,
    task.TIMEOUT,
    task.IDEMPOTENCY_KEY,
]


def sent(monkeypatch: pytest.MonkeyPatch, options: Options, content_type: ContentType, **arguments: Any) -> Publication:
    """What a submit sends, at a known time and under a known id."""
    app = Canoa("shop", content_type=content_type)

    @app.action(priorities=5)
    async def resize(path: str, *, width: int = 100) -> str:
        return f"{path} {width}"

    monkeypatch.setattr(outgoing, "new_task_id", lambda: TASK_ID)
    monkeypatch.setattr("canoa.client.outgoing.time.time", lambda: NOW_S)
    body = resize.signature.encode((), arguments, content_type)
    reply_to = "canoa.reply.0011223344556677"
    return outgoing.publication(
        ACTION, body, content_type.value, options, action=resize, reply_to=reply_to, limit_bytes=1000
    )


def test_a_submit_is_written_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    publication = sent(monkeypatch, Options(), ContentType.JSON, path="a.png", width=80)

    assert publication.message == golden("task")
    assert (publication.exchange, publication.key, publication.mandatory) == ("", "canoa.action.shop.resize", True)


def test_options_are_written_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(result="none", priority=3, timeout=2.5, retry=4, queue_timeout=5.5, idempotency_key="order-17")
    parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    token = trace.received.set(parent)

    publication = sent(monkeypatch, options, ContentType.MSGPACK, path="a.png")
    trace.received.reset(token)

    assert publication.message == golden("task_with_options")


@pytest.mark.parametrize(
    "options",
    [Options(after=90, queue_timeout=5), Options(at=datetime.fromtimestamp(NOW_S + 90, UTC), queue_timeout=5)],
)
def test_a_delayed_task_says_when_it_is_due_and_its_queue_time_counts_from_then(
    monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    publication = sent(monkeypatch, options, ContentType.JSON, path="a.png")

    assert publication.message.headers == {"canoa-due": 1763237820250, "canoa-deadline": 1763237825250}
    assert publication.message.expiration_s is None
    assert (publication.exchange, publication.key) == ("canoa.retry.60000ms", "canoa.action.shop.resize")


@pytest.mark.parametrize("options", [Options(after=0), Options(at=datetime.fromtimestamp(NOW_S - 90, UTC))])
def test_what_is_due_already_is_no_different_from_any_other(monkeypatch: pytest.MonkeyPatch, options: Options) -> None:
    publication = sent(monkeypatch, options, ContentType.JSON, path="a.png", width=80)

    assert publication.message == golden("task")
    assert (publication.exchange, publication.key) == ("", "canoa.action.shop.resize")


def test_what_is_sent_again_later_waits_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sent(monkeypatch, Options(after=90), ContentType.JSON, path="a.png")

    def where(later_s: float) -> str:
        again = outgoing.aimed_anew(first, NOW_S + later_s)
        assert (again.key, again.message) == (first.key, first.message)
        return again.exchange

    assert [where(later_s) for later_s in (0, 31, 89.5, 89.99, 90, 1000)] == [
        "canoa.retry.60000ms",
        "canoa.retry.30000ms",
        "canoa.retry.500ms",
        "canoa.retry.100ms",
        "",
        "",
    ]


def test_a_task_is_read_as_ever() -> None:
    known = task.read(golden("task_with_options"), ACTION)

    assert (known.id, known.action, known.attempt, known.crashes) == (TASK_ID, ACTION, 1, 0)
    assert (known.sent_s, known.deadline_s, known.timeout_s, known.retries) == (1763234206.922, 1763237735.75, 2.5, 4)
    assert known.idempotency_key == "order-17"
    traced = known.trace()
    assert traced is not None
    assert (traced.trace_id, traced.state) == ("0af7651916cd43dd8448eb211c80319c", "vendor=1")


def test_a_task_of_another_program_needs_only_an_id() -> None:
    known = task.read(golden("task_foreign"), ACTION)

    assert (known.id, known.attempt, known.crashes, known.sent_s, known.deadline_s) == ("order-17", 1, 0, None, None)
    assert known.trace() is None


def test_a_retry_is_written_and_read_as_ever() -> None:
    first = msgspec.structs.replace(golden("task"), body=b'{"path":"a.png"}')

    again = task.again(task.again(first, crashes=1), attempt=3)

    assert again == golden("task_retried")
    known = task.read(again, ACTION)
    assert (known.attempt, known.crashes) == (3, 1)


def test_a_retry_forgets_the_brokers_notes_on_earlier_journeys() -> None:
    travelled = msgspec.structs.replace(
        golden("task"), headers={**golden("task").headers, "x-death": [{"count": 3}], "x-first-death-queue": "q"}
    )

    assert task.again(travelled).headers == golden("task").headers


@pytest.mark.parametrize("message_id", [None, ""])
def test_a_message_without_an_id_is_no_task(message_id: str | None) -> None:
    with pytest.raises(Undecodable, match="the task has no message_id; send one, unique per task"):
        task.read(Message(body=b"{}", message_id=message_id), ACTION)


@given(headers_of_tasks)
def test_sound_headers_are_read_exactly(headers: dict[str, Any]) -> None:
    known = task.read(Message(body=b"", message_id="a", headers=headers), ACTION)

    assert known.attempt == headers.get(task.ATTEMPT, 1)
    assert known.retries == headers.get(task.RETRIES)
    assert known.deadline_s == (headers[task.DEADLINE] / 1000 if task.DEADLINE in headers else None)
    assert known.due_s == (headers[task.DUE] / 1000 if task.DUE in headers else None)
    assert known.idempotency_key == headers.get(task.IDEMPOTENCY_KEY)


def outcome_of(message: Message) -> task.Task | Undecodable:
    try:
        return task.read(message, ACTION)
    except Undecodable as exc:
        return exc


@given(st.dictionaries(st.sampled_from(OURS), anything), anything, anything)
def test_any_headers_make_a_task_or_a_refusal_that_names_one(
    headers: dict[str, HeaderValue], traceparent: HeaderValue, tracestate: HeaderValue
) -> None:
    message = Message(
        body=b"", message_id="a", headers={**headers, "traceparent": traceparent, "tracestate": tracestate}
    )

    known = outcome_of(message)

    if isinstance(known, Undecodable):
        assert any(f"header {name} is " in str(known) for name in headers)
    else:
        known.trace()
        assert known.attempt + 1 < 2**63  # what a retry or a crash will write
        assert known.crashes + 1 < 2**63


@pytest.mark.parametrize("name", [task.ATTEMPT, task.CRASHES, task.RETRIES, task.TIMEOUT, task.DEADLINE, task.SENT])
@pytest.mark.parametrize("value", ["x", -1, 2**63, 1.5, True, None, {"a": 1}, [1], b"\xff"])
def test_a_header_that_is_no_count_is_refused_by_name_and_value(name: str, value: Any) -> None:
    with pytest.raises(Undecodable, match=f"header {name} is .*; it must be an integer from") as caught:
        task.read(Message(body=b"", message_id="a", headers={name: value}), ACTION)

    assert repr(value) in str(caught.value)


def test_a_task_outside_any_trace_tells_its_time_and_starts_a_trace_by_its_id_alone() -> None:
    known = task.read(golden("task"), ACTION)

    assert known.message.headers == {}
    assert known.sent_s == int(known.id[:12], 16) / 1000
    assert known.trace() == trace.TraceContext(known.id, known.id[16:], 1, None)


def test_the_id_of_another_program_tells_no_time_and_starts_no_trace() -> None:
    known = task.read(Message(body=b"{}", message_id="order-17"), ACTION)

    assert known.sent_s is None
    assert known.trace() is None
