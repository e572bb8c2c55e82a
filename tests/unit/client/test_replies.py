"""Who hears an answer, and which tasks a restarted broker gets again: those it may have had, and no others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from canoa.broker.port import Message, Publication
from canoa.client.handle import Handle
from canoa.client.replies import Kept, Replies
from canoa.errors import DeliveryUnknown
from canoa.vocabulary import ActionName, TaskId


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
