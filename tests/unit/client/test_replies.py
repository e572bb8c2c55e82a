"""Who hears an answer, and which tasks a restarted broker gets again: those it may have had, and no others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from canoa.broker.port import Message, Publication
from canoa.client import replies as replies_module
from canoa.client.handle import Handle
from canoa.client.metrics import METRICS
from canoa.client.replies import Kept, Replies
from canoa.errors import DeliveryUnknown
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import bundle


class Caller:
    """As much of a session as a handle needs."""

    def __init__(self, replies: Replies) -> None:
        self.loop = asyncio.get_running_loop()
        self.replies = replies


def expected(replies: Replies, name: str, *, is_kept: bool) -> tuple[Handle[Any], Publication]:
    handle: Handle[Any] = Handle(cast("Any", Caller(replies)), TaskId(name), ActionName("shop.resize"))
    publication = Publication(message=Message(body=b"{}", message_id=name, persistent=False), key="q")
    replies.expect(handle, None, Kept(publication) if is_kept else None)
    return handle, publication


async def test_what_was_taken_is_sent_again_and_what_is_still_being_sent_is_not() -> None:
    replies = Replies(1000)
    taken, again = expected(replies, "taken", is_kept=True)
    expected(replies, "not yet", is_kept=True)
    submitted, _ = expected(replies, "on disk", is_kept=False)

    replies.taken(taken)
    replies.taken(submitted)

    assert replies.forgotten() == [(taken, again)]


async def test_what_was_answered_is_not_sent_again() -> None:
    replies = Replies(1000)
    taken, _ = expected(replies, "taken", is_kept=True)
    replies.taken(taken)

    replies.drop(taken, DeliveryUnknown("given up"))

    assert replies.forgotten() == []


async def test_after_too_long_a_cut_submits_end_in_doubt_and_calls_go_on() -> None:
    replies = Replies(1000)
    kept, _ = expected(replies, "kept", is_kept=True)
    submitted, _ = expected(replies, "on disk", is_kept=False)

    replies.fail_submitted("no link for too long,")

    assert not kept.is_done
    with pytest.raises(DeliveryUnknown, match="no link for too long, before task on disk"):
        await submitted.result()


async def test_handles_of_one_task_all_hear_its_end_except_the_one_that_gave_up() -> None:
    replies = Replies(1000)
    first, second, third = [expected(replies, "paid once", is_kept=False)[0] for _ in range(3)]

    replies.drop(first, DeliveryUnknown("given up"))
    replies.fail_all("the app was closed")

    with pytest.raises(DeliveryUnknown, match="given up"):
        await first.result()
    for handle in (second, third):
        with pytest.raises(DeliveryUnknown, match="the app was closed"):
            await handle.result()


class Reply:
    """A delivery to the session's queue."""

    def __init__(self, message: Message) -> None:
        self.message = message


def answered(replies: Replies, *names: str) -> None:
    """Together, as managers do."""
    answers = [Message(body=name.encode(), correlation_id=name, type="ok") for name in names]
    [(message, _)] = bundle.packed(answers)
    replies.on_reply(cast("Any", Reply(message)))


async def test_every_answer_of_a_bundle_is_heard_and_a_second_one_is_a_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(METRICS, "duplicates", 0)
    replies = Replies(1000)
    handles = [expected(replies, name, is_kept=False)[0] for name in ("1", "2", "3")]

    answered(replies, "1", "2", "1")

    assert [handle.is_done for handle in handles] == [True, True, False]
    assert [await handle.result() for handle in handles[:2]] == [1, 2]
    assert METRICS.duplicates == 1


@pytest.mark.parametrize("body", [b"", b"{}", b"\x91" * 10_000, b"\xdd\xff\xff\xff\xff", b"x" * 300_000])
async def test_a_bundle_that_cannot_be_read_is_counted_and_ends_no_handle(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(METRICS, "refused", 0)
    replies = Replies(1000)
    handle, _ = expected(replies, "1", is_kept=False)

    replies.on_reply(cast("Any", Reply(Message(body=body, content_type=bundle.CONTENT_TYPE, correlation_id="1"))))

    assert (METRICS.refused, handle.is_done) == (1, False)
    answered(replies, "1")
    assert await handle.result() == 1


# --- Acknowledging ----------------------------------------------------------------------------------------------


class Acknowledged:
    """A consumer that remembers through which reply it was told to settle."""

    def __init__(self) -> None:
        self.through: list[str | None] = []

    def settle_through(self, delivery: Any) -> bool:
        self.through.append(delivery.message.message_id)
        return True


def reply(name: str, body: bytes = b"1") -> Any:
    return Reply(Message(body=body, message_id=name, correlation_id=name))


def heard_by(replies: Replies) -> Acknowledged:
    consumer = Acknowledged()
    replies.consumer = cast("Any", consumer)
    return consumer


async def test_replies_are_acknowledged_together_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies_module, "SETTLE_AFTER_S", 0.01)
    replies = Replies(1000)
    consumer = heard_by(replies)

    for name in "abc":
        replies.on_reply(reply(name))
    at_once = list(consumer.through)
    await asyncio.sleep(0.05)

    assert (at_once, consumer.through) == ([], ["c"])


@pytest.mark.parametrize(("count", "body"), [(replies_module.SETTLE_AT, b"1"), (4, b"x" * 300_000)])
async def test_many_or_large_replies_are_acknowledged_at_once(count: int, body: bytes) -> None:
    replies = Replies(1000)
    consumer = heard_by(replies)

    for number in range(count):
        replies.on_reply(reply(f"{number}", body))
    through = list(consumer.through)
    replies.on_reply(reply("next"))

    assert (through, consumer.through) == ([f"{count - 1}"], through)
