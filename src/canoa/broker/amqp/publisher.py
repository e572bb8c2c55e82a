"""Publishing with confirms: pipelined, in a bounded window, and honest about what is not known.

Never sent, refused, returned, unanswered: each is told apart (`PublishOutcome`). What is posted while the link is down
or the broker blocks waits here, up to `timeout_s`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from canoa.broker.amqp import methods
from canoa.broker.amqp.errors import NOT_FOUND, AmqpError, ClosedByBroker
from canoa.broker.amqp.keeper import ChannelKeeper, LinkKeeper
from canoa.errors import BrokerBlocked, BrokerRefusedMessage, BrokerUnreachable, DeliveryUnknown, Unroutable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.amqp.engine import Channel
    from canoa.broker.amqp.link import Link
    from canoa.broker.port import Message, Publication, PublishOutcome

SWEEP_EVERY_S = 0.5


class _Posted(NamedTuple):
    publication: Publication
    on_outcome: Callable[[PublishOutcome], None]
    due_s: float  # by the loop's clock: when waiting ends


class Publisher(ChannelKeeper):
    """`window`: how many unconfirmed messages `publish` allows. Wider hides more latency, and holds more in doubt."""

    def __init__(self, links: LinkKeeper, *, window: int, timeout_s: float) -> None:
        super().__init__(links, name="publisher")
        self._loop = asyncio.get_running_loop()
        self._window = window
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._blocked_by: str | None = None
        self._last_tag = 0
        self._unanswered: dict[int, _Posted] = {}
        self._returned: dict[int, str] = {}
        self._backlog: deque[_Posted] = deque()
        self._room: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def is_blocked(self) -> bool:
        return self._blocked_by is not None

    # --- Posting ------------------------------------------------------------------------------

    def post(self, publication: Publication, on_outcome: Callable[[PublishOutcome], None]) -> None:
        if publication.mandatory and publication.message.message_id is None:
            raise ValueError("a mandatory message needs a message_id")
        if self._is_closed or self.ended.done():
            self._loop.call_soon(on_outcome, self._never_sent())
            return
        posted = _Posted(publication, on_outcome, self._loop.time() + self._timeout_s)
        if self._channel is None or self._blocked_by is not None:
            self._backlog.append(posted)
        else:
            self._send(self._channel, posted)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _send(self, channel: Channel, posted: _Posted) -> None:
        channel.publish(posted.publication)
        self._last_tag += 1
        self._unanswered[self._last_tag] = posted

    async def publish(self, publication: Publication) -> None:
        await self._wait_for_room()
        answer: asyncio.Future[PublishOutcome] = self._loop.create_future()
        self.post(publication, partial(_answer, answer))
        error = await answer
        if error is not None:
            raise error

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = [None] * len(publications)
        missing = len(publications)
        all_known: asyncio.Future[None] = self._loop.create_future()

        def on_outcome(index: int, outcome: PublishOutcome) -> None:
            nonlocal missing
            outcomes[index] = outcome
            missing -= 1
            if missing == 0 and not all_known.done():
                all_known.set_result(None)

        for index, publication in enumerate(publications):
            if len(self._unanswered) + len(self._backlog) >= self._window:
                await self._wait_for_room()
            self.post(publication, partial(on_outcome, index))
        if missing:
            await all_known
        return outcomes

    async def _wait_for_room(self) -> None:
        while len(self._unanswered) + len(self._backlog) >= self._window:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._room.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._make_room()  # our turn goes to the next in line
                raise

    def _make_room(self) -> None:
        free = self._window - len(self._unanswered) - len(self._backlog)
        while self._room and free > 0:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    # --- Hearing ------------------------------------------------------------------------------

    def _on_confirm(self, tag: int, multiple: bool, is_taken: bool) -> None:
        if multiple:
            for earlier in list(takewhile(lambda known: known <= tag, self._unanswered)):
                self._resolve(earlier, is_taken)
        elif tag in self._unanswered:
            self._resolve(tag, is_taken)
        if self._room:
            self._make_room()

    def _resolve(self, tag: int, is_taken: bool) -> None:
        publication, on_outcome, _ = self._unanswered.pop(tag)
        if not is_taken:
            on_outcome(
                BrokerRefusedMessage(f"the broker refused a message for {_place(publication)}: queue full or failed")
            )
        elif self._returned and tag in self._returned:
            on_outcome(Unroutable(f"no queue at {_place(publication)} ({self._returned.pop(tag)})"))
        else:
            on_outcome(None)

    def _on_return(self, text: str, exchange: str, key: str, message: Message) -> None:
        """A return carries no tag, and comes before the message's confirm: find it by its id."""
        for tag, posted in self._unanswered.items():
            wanted = posted.publication
            if wanted.message.message_id == message.message_id and wanted.key == key and tag not in self._returned:
                self._returned[tag] = text
                return

    def _on_blocked(self, reason: str | None) -> None:
        self._blocked_by = reason
        if reason is None:
            self._send_backlog()

    # --- Life -----------------------------------------------------------------------------------

    async def _set_up(self, link: Link, channel: Channel) -> None:
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        await link.request(channel, methods.CONFIRM_SELECT_OK, methods.CONFIRM_SELECT, False)
        link.engine.on_blocked = self._on_blocked
        self._blocked_by = None
        self._last_tag = 0
        self._channel = channel
        self._send_backlog()

    def _send_backlog(self) -> None:
        while self._backlog and self._channel is not None and self._blocked_by is None:
            self._send(self._channel, self._backlog.popleft())

    def _torn_down(self, error: AmqpError) -> None:
        self._channel = None
        self._blocked_by = None
        unanswered, self._unanswered = self._unanswered, {}
        self._returned.clear()
        only_one = len(unanswered) == 1
        for publication, on_outcome, _ in unanswered.values():
            if only_one and isinstance(error, ClosedByBroker) and error.code == NOT_FOUND:
                on_outcome(Unroutable(f"no exchange at {_place(publication)}: {error.text}"))
            else:
                on_outcome(DeliveryUnknown(f"the link broke before the answer for {_place(publication)} came: {error}"))
        self._make_room()

    def _sweep(self) -> None:
        """End the wait of what is overdue. Both collections are in the order of their due times."""
        now = self._loop.time()
        while self._backlog and self._backlog[0].due_s <= now:
            self._backlog.popleft().on_outcome(self._never_sent())
        for tag in list(takewhile(lambda known: self._unanswered[known].due_s <= now, self._unanswered)):
            publication, on_outcome, _ = self._unanswered.pop(tag)
            on_outcome(
                DeliveryUnknown(f"no answer for {_place(publication)} within {self._timeout_s:g} s{self._why()}")
            )
        self._make_room()
        is_idle = not self._backlog and not self._unanswered
        self._sweeper = None if is_idle else self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _never_sent(self) -> BrokerUnreachable:
        if self._is_closed:
            return BrokerUnreachable("the broker object is closed")
        if self._blocked_by is not None:
            return BrokerBlocked(f"the broker takes no messages ({self._blocked_by}); nothing was sent")
        return BrokerUnreachable(f"no link to the broker within {self._timeout_s:g} s: {self._links.last_error}")

    def _why(self) -> str:
        return f"; the broker takes no messages ({self._blocked_by})" if self._blocked_by else ""

    async def aclose(self) -> None:
        """Everyone who still waits hears at once."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.stop()
        while self._backlog:
            self._backlog.popleft().on_outcome(self._never_sent())
        unanswered, self._unanswered = self._unanswered, {}
        for publication, on_outcome, _ in unanswered.values():
            on_outcome(DeliveryUnknown(f"closed before the answer for {_place(publication)} came"))
        self._make_room()


def _answer(answer: asyncio.Future[Any], outcome: PublishOutcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _place(publication: Publication) -> str:
    return f"exchange {publication.exchange!r}, key {publication.key!r}"
