"""A task is sent again while its fate is unknown, and its caller hears what is true: unsent, refused, or in doubt."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from canoa.broker.port import Message, Publication
from canoa.client.handle import Handle
from canoa.client.replies import Replies
from canoa.client.sending import Sending
from canoa.errors import (
    BrokerBlocked,
    BrokerRefusedMessage,
    BrokerUnreachable,
    CanoaError,
    DeliveryUnknown,
    UnknownAction,
    Unroutable,
)
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canoa.broker.port import Broker, HeaderValue, PublishOutcome
    from canoa.client.session import Session

UNKNOWN = DeliveryUnknown("the link broke")


class Link:
    """The posting side of a broker whose answers are written beforehand: broken links come and go at will here."""

    def __init__(self, *outcomes: PublishOutcome) -> None:
        self.posted = 0
        self.exchanges: list[str] = []
        self._outcomes = list(outcomes)

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self.posted += 1
        self.exchanges.append(publication.exchange)
        asyncio.get_running_loop().call_soon(on_outcome, self._outcomes.pop(0))


class Caller:
    """As much of a session as sending needs."""

    def __init__(self, *, patience_s: float = 60.0) -> None:
        self.is_memory = False
        self.loop = asyncio.get_running_loop()
        self.is_open = True
        self.replies = Replies(1000)
        self._patience_s = patience_s

    def give_up_s(self) -> float:
        return self.loop.time() + self._patience_s


async def sent(
    link: Link, caller: Caller, *, answered: bool = False, exchange: str = "", headers: Mapping[str, HeaderValue] = {}
) -> tuple[CanoaError | None, Handle[Any]]:
    """What the submit hears, and the handle."""
    session = cast("Session", caller)
    handle: Handle[Any] = Handle(session, TaskId("a"), ActionName("shop.resize"))
    caller.replies.expect(handle, None, None)
    if answered:
        handle.succeed("early")
    message = Message(body=b"", message_id="a", reply_to="canoa.reply.b", headers=headers)
    accepted: asyncio.Future[CanoaError | None] = caller.loop.create_future()
    publication = Publication(message=message, exchange=exchange, key="q")
    Sending(session, cast("Broker", link), publication, handle, accepted).post()
    return await accepted, handle


async def test_what_is_confirmed_is_accepted_and_waits_for_its_result() -> None:
    link, caller = Link(None), Caller()

    error, handle = await sent(link, caller)

    assert (error, handle.is_done, len(caller.replies), link.posted) == (None, False, 1, 1)


async def test_while_its_fate_is_unknown_it_is_sent_again() -> None:
    link = Link(UNKNOWN, UNKNOWN, None)

    error, handle = await sent(link, Caller())

    assert (error, handle.is_done, link.posted) == (None, False, 3)


async def test_a_delayed_task_that_is_sent_again_waits_for_what_is_left() -> None:
    link = Link(UNKNOWN, None)

    due = {task.DUE: round((time.time() + 45) * 1000)}
    await sent(link, Caller(), exchange="canoa.retry.60000ms", headers=due)

    assert link.exchanges == ["canoa.retry.60000ms", "canoa.retry.30000ms"]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Unroutable("no queue"), UnknownAction),
        (BrokerRefusedMessage("full"), BrokerRefusedMessage),
        (BrokerUnreachable("no link"), BrokerUnreachable),
        (BrokerBlocked("alarm"), BrokerBlocked),
    ],
)
async def test_a_refusal_is_told_and_ends_the_handle(outcome: CanoaError, kind: type[CanoaError]) -> None:
    caller = Caller()

    error, handle = await sent(Link(outcome), caller)

    assert type(error) is kind
    assert len(caller.replies) == 0
    with pytest.raises(kind):
        await handle.result()


@pytest.mark.parametrize("last", [BrokerUnreachable("no link"), BrokerBlocked("alarm")])
async def test_what_was_sent_once_without_an_answer_is_never_called_unsent(last: CanoaError) -> None:
    error, _ = await sent(Link(UNKNOWN, last), Caller())

    assert isinstance(error, DeliveryUnknown)
    assert f"was sent once, without an answer; then: {last}" in str(error)


async def test_doubt_ends_with_the_callers_patience() -> None:
    link = Link(UNKNOWN)

    error, _ = await sent(link, Caller(patience_s=0))

    assert isinstance(error, DeliveryUnknown)
    assert link.posted == 1


async def test_a_closed_session_sends_nothing_again() -> None:
    link, caller = Link(UNKNOWN), Caller()
    caller.is_open = False

    error, _ = await sent(link, caller)

    assert isinstance(error, DeliveryUnknown)
    assert link.posted == 1


async def test_a_result_that_came_before_the_confirm_proves_that_it_was_accepted() -> None:
    link = Link(UNKNOWN)

    error, handle = await sent(link, Caller(), answered=True)

    assert (error, link.posted) == (None, 1)
    assert await handle.result() == "early"
