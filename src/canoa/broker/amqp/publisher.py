"""Publishing with confirms: pipelined, in a bounded window, and honest about what is not known.

Never sent, refused, returned, unanswered: each is told apart (`PublishOutcome`). What is posted while the link is down
or the broker blocks waits here, up to `timeout_s`. Who waits for room is in `window.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa.broker.amqp import methods
from canoa.broker.amqp.errors import ACCESS_REFUSED, NOT_FOUND, AmqpError, ClosedByBroker
from canoa.broker.amqp.keeper import ChannelKeeper, LinkKeeper
from canoa.broker.amqp.window import Window
from canoa.errors import (
    BrokerBlocked,
    BrokerRefusedMessage,
    BrokerRefusedOperation,
    BrokerUnreachable,
    CanoaError,
    DeliveryUnknown,
    Unroutable,
    WrongUse,
)
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.amqp.engine import Channel
    from canoa.broker.amqp.link import Link
    from canoa.broker.port import Message, Publication, PublishOutcome

log = get_logger(__name__)

SWEEP_EVERY_S = 0.5

FEW: Final = 8
"""With fewer messages than these unconfirmed, and nobody waiting for them, the link rests (`Link.rest`): a process that
has nothing else to do is not woken for every confirm."""

TURN: Final = 64
"""Messages of one `publish_many` per turn of the loop: the broker works on them while the next ones are encoded."""


class _Posted(NamedTuple):
    publication: Publication
    on_outcome: Callable[[PublishOutcome], None]
    due_s: float  # by the loop's clock: when waiting, to be sent or for the answer, ends
    later: bool = False  # nobody waits for the answer

    def tell(self, outcome: PublishOutcome) -> None:
        try:
            self.on_outcome(outcome)
        except Exception:  # one caller's mistake must not keep the others from hearing theirs
            log.exception("publish_callback_failed", place=_place(self.publication))


class Publisher(ChannelKeeper):
    """`window`: how many unconfirmed messages `publish` allows. Wider hides more latency, and holds more in doubt."""

    def __init__(self, links: LinkKeeper, *, window: int, timeout_s: float) -> None:
        super().__init__(links, name="publisher")
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._channel: Channel | None = None
        self._blocked_by: str | None = None
        self._last_tag = 0
        self._awaited = 0  # how many of the unanswered somebody waits for
        self._unanswered: dict[int, _Posted] = {}
        self._returned: dict[int, str] = {}
        self._backlog: deque[_Posted] = deque()
        self._window = Window(window, lambda: len(self._unanswered) + len(self._backlog))
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def is_linked(self) -> bool:
        return self._ready_channel is not None

    @property
    def is_blocked(self) -> bool:
        return self._blocked_by is not None

    # --- Posting ------------------------------------------------------------------------------

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self._post(_Posted(publication, on_outcome, self._loop.time() + self._timeout_s, later))

    def _post(self, posted: _Posted) -> None:
        publication = posted.publication
        if publication.mandatory and publication.message.message_id is None:
            raise ValueError("a mandatory message needs a message_id")
        if self.ended.done():
            self._loop.call_soon(posted.tell, self._never_sent())
            return
        channel = self._ready_channel
        if channel is None:
            self._backlog.append(posted)
        else:
            self._send(channel, posted)
            self._listen()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    @property
    def _ready_channel(self) -> Channel | None:
        channel = self._channel
        return channel if channel is not None and channel.is_open and self._blocked_by is None else None

    def _send(self, channel: Channel, posted: _Posted) -> None:
        channel.publish(posted.publication)
        self._last_tag += 1
        self._unanswered[self._last_tag] = posted
        self._awaited += not posted.later

    def _answered(self, tag: int) -> _Posted:
        posted = self._unanswered.pop(tag)
        self._awaited -= not posted.later
        return posted

    def _all_answered(self) -> list[_Posted]:
        """Emptied first: whoever hears may post again."""
        everyone = list(self._unanswered.values())
        self._unanswered.clear()
        self._awaited = 0
        return everyone

    def _listen(self) -> None:
        """For the answers to what was sent."""
        if self._link is not None and not self._awaited and len(self._unanswered) < FEW:
            self._link.rest()
        else:
            self._hear()

    def _hear(self) -> None:
        if self._link is not None:
            self._link.hear()

    async def publish(self, publication: Publication) -> None:
        due_s = self._loop.time() + self._timeout_s
        if self._window.is_full:
            self._hear()
            await self._window.enter(due_s)
            if self._ready_channel is not None:  # it will be sent: the answer gets its own time
                due_s = self._loop.time() + self._timeout_s
        answer: asyncio.Future[PublishOutcome] = self._loop.create_future()
        self._post(_Posted(publication, partial(_answer, answer), due_s))
        error = await answer
        if error is not None:
            raise error

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        outcomes: list[PublishOutcome] = [None] * len(publications)
        missing = len(publications)
        all_known: asyncio.Future[None] = self._loop.create_future()
        never_sent: BrokerUnreachable | None = None

        def on_outcome(index: int, outcome: PublishOutcome) -> None:
            nonlocal missing, never_sent
            outcomes[index] = outcome
            missing -= 1
            if isinstance(outcome, BrokerUnreachable):
                never_sent = outcome
            if missing == 0 and not all_known.done():
                all_known.set_result(None)

        for index, publication in enumerate(publications):
            if self._window.is_full:
                self._hear()
                try:
                    await self._window.enter(self._loop.time() + self._timeout_s)
                except BrokerUnreachable as exc:
                    never_sent = exc
            if never_sent is None:
                self.post(publication, partial(on_outcome, index))
            else:  # one waited in vain for all the time there is: the rest need not wait as long again
                on_outcome(index, never_sent)
            if index % TURN == TURN - 1:
                await asyncio.sleep(0)  # what is written here leaves when the loop gets its turn
        if missing:
            await all_known
        return outcomes

    # --- Hearing ------------------------------------------------------------------------------

    def _on_confirm(self, tag: int, multiple: bool, is_taken: bool) -> None:
        if multiple:
            for earlier in list(takewhile(lambda known: known <= tag, self._unanswered)):
                self._resolve(earlier, is_taken)
        elif tag in self._unanswered:
            self._resolve(tag, is_taken)
        self._window.move_up()

    def _resolve(self, tag: int, is_taken: bool) -> None:
        posted = self._answered(tag)
        outcome: PublishOutcome = None
        if not is_taken:
            place = _place(posted.publication)
            outcome = BrokerRefusedMessage(f"the broker refused a message for {place}: queue full or failed")
        elif self._returned and tag in self._returned:
            outcome = Unroutable(f"no queue at {_place(posted.publication)} ({self._returned.pop(tag)})")
        posted.tell(outcome)

    def _on_return(self, text: str, exchange: str, key: str, message: Message) -> None:
        """A return carries no tag, and comes before the message's confirm: find it by its id."""
        for tag, posted in self._unanswered.items():
            wanted = posted.publication
            if wanted.message.message_id == message.message_id and wanted.key == key and tag not in self._returned:
                self._returned[tag] = text
                return

    def _on_blocked(self, reason: str | None) -> None:
        self._blocked_by = reason
        self._send_backlog()

    # --- Life -----------------------------------------------------------------------------------

    async def _set_up(self, link: Link, channel: Channel) -> None:
        channel.on_confirm = self._on_confirm
        channel.on_return = self._on_return
        link.engine.on_blocked = self._on_blocked
        await link.request(channel, methods.CONFIRM_SELECT_OK, methods.CONFIRM_SELECT, False)
        self._last_tag = 0
        self._link = link
        self._channel = channel
        self._send_backlog()

    def _send_backlog(self) -> None:
        """The time to wait for an answer starts when it is sent."""
        due_s = self._loop.time() + self._timeout_s
        while self._backlog and (channel := self._ready_channel) is not None:
            posted = self._backlog.popleft()._replace(due_s=due_s)
            try:
                self._send(channel, posted)
            except Exception as exc:  # with a link its sender would have heard this from `post`
                posted.tell(WrongUse(f"a message for {_place(posted.publication)} cannot be sent: {exc}"))
        if self._awaited:
            self._hear()

    def _torn_down(self, error: AmqpError) -> None:
        self._link = self._channel = None
        self._blocked_by = None
        self._returned.clear()
        for posted in self._all_answered():
            posted.tell(_why_unanswered(error, posted.publication))
        self._window.move_up()

    def _sweep(self) -> None:
        """End the wait of what is overdue."""
        now_s = self._loop.time()
        # Whoever waited for room has an earlier end than those before him, so all must be looked at.
        overdue = [posted for posted in self._backlog if posted.due_s <= now_s]
        if overdue:
            self._backlog = deque(posted for posted in self._backlog if posted.due_s > now_s)
        for posted in overdue:
            posted.tell(self._never_sent())
        for tag in list(takewhile(lambda known: self._unanswered[known].due_s <= now_s, self._unanswered)):
            posted = self._answered(tag)
            place = _place(posted.publication)
            posted.tell(DeliveryUnknown(f"no answer for {place} within {self._timeout_s:g} s{self._why()}"))
        self._window.turn_away(now_s, self._never_sent)
        self._window.move_up()
        is_idle = not self._backlog and not self._unanswered
        self._sweeper = None if is_idle else self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _never_sent(self) -> BrokerUnreachable:
        if self.ended.done():
            return BrokerUnreachable(str(self.ended.exception() or "the broker object is closed"))
        if self._blocked_by is not None:
            return BrokerBlocked(f"the broker takes no messages ({self._blocked_by}); nothing was sent")
        if self._channel is not None:
            return BrokerUnreachable(f"too many messages were unconfirmed for {self._timeout_s:g} s; nothing was sent")
        return BrokerUnreachable(f"no link to the broker within {self._timeout_s:g} s: {self._links.last_error}")

    def _why(self) -> str:
        return f"; the broker takes no messages ({self._blocked_by})" if self._blocked_by else ""

    async def stop(self) -> None:
        self._hear()
        for _ in range(2):  # turns of the loop, in which what has come already is heard
            await asyncio.sleep(0)
        await super().stop()

    def _end(self, error: CanoaError | None) -> None:
        """Closed, or given up: everyone who still waits hears at once."""
        super()._end(error)
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._backlog:
            self._backlog.popleft().tell(self._never_sent())
        for posted in self._all_answered():
            posted.tell(DeliveryUnknown(f"closed before the answer for {_place(posted.publication)} came"))
        self._window.open_up()


def _answer(answer: asyncio.Future[Any], outcome: PublishOutcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _why_unanswered(error: AmqpError, publication: Publication) -> CanoaError:
    """A broker that closes the channel names the exchange it did not like: what went elsewhere only shared its fate."""
    place = _place(publication)
    if isinstance(error, ClosedByBroker) and f"exchange '{publication.exchange or 'amq.default'}'" in error.text:
        if error.code == NOT_FOUND:
            return Unroutable(f"no exchange at {place}: {error.text}")
        if error.code == ACCESS_REFUSED:
            return BrokerRefusedOperation(f"the broker refuses a message for {place}: {error.text}")
    return DeliveryUnknown(f"the link broke before the answer for {place} came: {error}")


def _place(publication: Publication) -> str:
    return f"exchange {publication.exchange!r}, key {publication.key!r}"
