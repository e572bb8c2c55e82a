"""Nothing in a message is trusted: whatever comes to a recorder's queues can be stored and shown, or is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canoa.broker.port import Message
from canoa.clock import as_time
from canoa.errors import CanoaError, Undecodable
from canoa.execution.outcome import Outcome
from canoa.recorder import reading, showing
from canoa.store.port import Accept, Cursor, State, TaskFilter
from canoa.store.sqlite import SqliteStore
from canoa.wire import result, task
from canoa.wire.ids import MAX_ID_BYTES, is_usable_id

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_800_000_000_000

short = st.one_of(
    st.none(), st.text(max_size=60), st.sampled_from(["shop.buy", "ok", "failed", "f" * 12 + "7" + "0" * 19])
)
value = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([0, NOW_MS, 2**48, 2**53]),
        st.floats(),
        st.text(max_size=300),
        st.binary(max_size=50),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
header = st.sampled_from(
    [
        *(task.SENT, task.ATTEMPT, task.CRASHES, task.DEADLINE, task.DUE, task.RETRIES, task.TIMEOUT, task.RUN),
        *(result.REASON, result.ERROR, result.NODE, result.DEAD_SINCE, result.ORIGIN, result.TRACEBACK),
        *(result.ACTION, result.STARTED, "x-death"),
    ]
)
messages = st.builds(
    Message,
    body=st.binary(max_size=100) | st.just(b"[" * 50_000) | st.just(b'{"message": "no"}'),
    content_type=short | st.sampled_from(["application/json", "application/msgpack"]),
    content_encoding=short | st.sampled_from(["gzip", "zstd"]),
    headers=st.dictionaries(header, value, max_size=5),
    correlation_id=short,
    message_id=short,
    reply_to=short,
    type=short,
)


@pytest.mark.parametrize("read", [reading.new_task, reading.end, reading.letter])
@settings(max_examples=100, deadline=None)
@given(message=messages)
def test_a_message_is_read_or_refused_and_nothing_else(read: Any, message: Message) -> None:
    with suppress(Undecodable):
        read(message, NOW_MS)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(messages, min_size=20, max_size=20))
async def test_what_was_read_can_be_stored_and_shown(tmp_path: Path, batch: list[Message]) -> None:
    store = SqliteStore(tmp_path / "canoa.db")
    await store.open()
    try:
        await store.apply([change for message in batch for change in _changes(message)])
        for row in await store.tasks(TaskFilter(), limit=1000):
            answer = await store.result(row.id) if row.state is State.ENDED else None
            _shown(row, answer)
        for letter in await store.letters(limit=1000):
            showing.letter(letter)
    finally:
        await store.aclose()


def _changes(message: Message) -> list[Any]:
    changes: list[Any] = [reading.letter(message, NOW_MS)]
    for made in (lambda: Accept(task=reading.new_task(message, NOW_MS)), lambda: reading.end(message, NOW_MS)):
        with suppress(Undecodable):
            changes.append(made())
    return changes


def _shown(row: Any, answer: Message | None) -> None:
    showing.task(row)
    with suppress(CanoaError):  # a result that is none: told to whoever asks for this one
        showing.result(row, answer, 1_000_000)


def test_a_time_beyond_the_calendar_is_its_end() -> None:
    assert as_time(2**53).year == 9999
    assert as_time(-(2**53)).year == 1


def test_letters_without_an_id_are_kept_each_and_the_same_one_once() -> None:
    first, second = Message(body=b"first"), Message(body=b"second")

    ids = [reading.letter(message, NOW_MS).letter.task_id for message in (first, second, first)]

    assert ids[0] != ids[1]
    assert ids[0] == ids[2]


def test_letters_without_an_id_from_two_queues_do_not_replace_each_other() -> None:
    letters = [Message(body=b"{}", headers={result.ORIGIN: f"canoa.action.shop.{name}"}) for name in ("buy", "sell")]

    first, second = (reading.letter(message, NOW_MS).letter.task_id for message in letters)

    assert first != second


@pytest.mark.parametrize("header", [result.DEAD_SINCE, result.STARTED])
def test_what_claims_to_have_happened_in_the_future_happened_now(header: str) -> None:
    message = Message(body=b"1", type="ok", correlation_id="a", message_id="a", headers={header: NOW_MS + 86_400_000})

    assert reading.letter(message, NOW_MS).letter.dead_ms == NOW_MS
    assert reading.end(message, NOW_MS).started_ms in (None, NOW_MS)


@pytest.mark.parametrize("task_id", ["a" * 129, "\N{SNOWMAN}" * 67, "line\nfeed", "nul\x00"])
def test_an_id_that_nobody_could_ask_for_is_refused_everywhere(task_id: str) -> None:
    message = Message(body=b"{}", type="shop.buy", message_id=task_id, correlation_id=task_id)

    with pytest.raises(Undecodable):
        reading.new_task(message, NOW_MS)
    with pytest.raises(Undecodable):
        reading.end(msgspec.structs.replace(message, type="ok"), NOW_MS)
    assert is_usable_id(reading.letter(message, NOW_MS).letter.task_id)


def test_a_page_may_end_at_every_id_that_is_kept() -> None:
    task_id = "\N{SNOWMAN}" * (MAX_ID_BYTES // 3)
    kept = reading.new_task(Message(body=b"{}", type="shop.buy", message_id=task_id), NOW_MS)

    assert showing.read_cursor(showing.cursor(kept.submitted_ms, kept.id)) == Cursor(NOW_MS, kept.id)


def test_a_task_was_never_submitted_before_there_were_clocks() -> None:
    task_id = "-" + "f" * 11 + "7" + "0" * 19

    assert reading.new_task(Message(body=b"{}", type="shop.buy", message_id=task_id), NOW_MS).submitted_ms == NOW_MS


def test_names_that_others_claim_are_cut_to_what_fits_into_a_routing_key() -> None:
    message = Message(body=b"", headers={result.ORIGIN: "\N{SNOWMAN}" * 5000, result.ACTION: "a" * 5000})
    told = msgspec.structs.replace(message, type=Outcome.OK.value, correlation_id="a")

    assert len(reading.letter(message, NOW_MS).letter.origin.encode()) == 255
    assert len(reading.end(told, NOW_MS).action) == 255
