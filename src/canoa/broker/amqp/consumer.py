"""Consuming that recovers: a subscription on a channel of its own, set up again after every loss.

A channel per consumer keeps trouble apart: what closes one leaves the others alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from canoa.broker.amqp import methods
from canoa.broker.amqp.errors import AmqpError, ClosedByBroker, LinkLost
from canoa.broker.amqp.keeper import ChannelKeeper, LinkKeeper
from canoa.broker.amqp.refusals import lacks_queue
from canoa.broker.port import (
    Binding,
    Declaration,
    Delivery,
    Exchange,
    Message,
    OnDelivery,
    Queue,
    Relay,
    Settlement,
)
from canoa.errors import QueueMissing, SettingError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.amqp.engine import Channel
    from canoa.broker.amqp.link import Link

log = get_logger(__name__)

MAX_PREFETCH: Final = 65_535


class AmqpDelivery:
    """A message in our hands, on the channel that brought it: on no other can it be settled."""

    __slots__ = ("_channel", "_tag", "exchange", "key", "message", "redelivered")

    def __init__(
        self, channel: Channel, tag: int, redelivered: bool, exchange: str, key: str, message: Message
    ) -> None:
        self._channel: Channel | None = channel
        self._tag = tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.key = key
        self.message = message

    @property
    def is_settled(self) -> bool:
        channel = self._channel
        return channel is None or not channel.is_open or self._tag <= channel.settled_through

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        return self._settle(how, multiple=False)

    def settle_through(self, how: Settlement) -> bool:
        return self._settle(how, multiple=True)

    def _settle(self, how: Settlement, *, multiple: bool) -> bool:
        channel, self._channel = self._channel, None
        if channel is None or not channel.is_open or self._tag <= channel.settled_through:
            return False
        channel.settle(self._tag, how, multiple=multiple)
        return True


class AmqpConsumer(ChannelKeeper):
    def __init__(
        self,
        links: LinkKeeper,
        queue: str,
        on_delivery: OnDelivery,
        *,
        prefetch: int,
        topology: Sequence[Declaration],
        on_recovered: Callable[[float], None] | None,
    ) -> None:
        super().__init__(links, name=f"consumer[{queue}]")
        self.queue = queue
        self._on_recovered = on_recovered
        self._lost_s = 0.0
        self._on_delivery = on_delivery
        self._prefetch = _checked(prefetch)
        self._topology = topology
        self._declares_queue = any(isinstance(each, Queue) and each.name == queue for each in topology)
        self._tag = ""
        self._consumed = 0
        self._begun: asyncio.Future[Any] | None = None
        self._link: Link | None = None
        self._channel: Channel | None = None
        self._is_cancelled = False

    @property
    def is_listening(self) -> bool:
        return self._channel is not None and not self._is_cancelled and not self.ended.done()

    async def _set_up(self, link: Link, channel: Channel) -> None:
        channel.on_deliver = self._receiver(channel)
        channel.on_cancelled = lambda: self._on_cancelled(link, channel)
        try:
            await declare(channel, self._topology)
            self._link, self._channel = link, channel
            await asyncio.gather(self._limit(link, channel), self._consume(link, channel))
        except ClosedByBroker as exc:
            if not lacks_queue(exc, self.queue):
                raise
            if self._declares_queue:  # deleted since we declared it, a moment ago
                raise LinkLost(str(exc)) from exc
            raise QueueMissing(self.queue) from exc
        if self._first.done() and self._on_recovered is not None:
            self._on_recovered(asyncio.get_running_loop().time() - self._lost_s)

    def _limit(self, link: Link, channel: Channel) -> asyncio.Future[Any]:
        channel.prefetch = self._prefetch
        return link.request(channel, methods.BASIC_QOS_OK, methods.BASIC_QOS, 0, self._prefetch, False)

    def _consume(self, link: Link, channel: Channel) -> asyncio.Future[Any]:
        self._consumed += 1
        self._tag = f"canoa-{self._consumed}"
        begin: tuple[Any, ...] = (0, self.queue, self._tag, False, False, False, False, {})
        self._begun = link.request(channel, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, *begin)
        return self._begun

    async def _until_begun(self) -> None:
        """RabbitMQ falls over a consumer that ends before its begin was answered, and takes the connection with it
        (541, seen with 3.10)."""
        while self._begun is not None and not self._begun.done():
            await asyncio.wait([self._begun])

    def _end_consuming(self, link: Link, channel: Channel) -> asyncio.Future[Any]:
        return link.request(channel, methods.BASIC_CANCEL_OK, methods.BASIC_CANCEL, self._tag, False)

    def _receiver(self, channel: Channel) -> Any:
        on_delivery = self._on_delivery

        def receive(tag: int, redelivered: bool, exchange: str, key: str, message: Message) -> None:
            try:
                on_delivery(AmqpDelivery(channel, tag, redelivered, exchange, key, message))
            except Exception:
                log.exception("consumer_callback_failed", queue=self.queue)

        return receive

    def _on_cancelled(self, link: Link, channel: Channel) -> None:
        """The broker ended the consumer (queue deleted, consumer timeout): give back what the channel holds."""
        if not self._is_cancelled:
            channel.on_closed(LinkLost(f"the broker cancelled the consumer of {self.queue!r}"))
            link.abandon(channel)

    def _torn_down(self, error: AmqpError) -> None:
        if self._channel is not None:
            self._lost_s = asyncio.get_running_loop().time()
        self._link = self._channel = None

    def settle_through(self, delivery: Delivery, how: Settlement = Settlement.ACK) -> bool:
        assert isinstance(delivery, AmqpDelivery)
        return delivery.settle_through(how)

    async def set_prefetch(self, prefetch: int) -> None:
        """AMQP fixes a consumer's prefetch when it starts, so it is ended and begun anew on the same channel."""
        self._prefetch = _checked(prefetch)
        await self._until_begun()
        link, channel = self._link, self._channel
        if link is None or channel is None or self._is_cancelled:
            return
        # All at once: given up in between, it would be connected and deaf. Should the channel be gone instead, it comes
        # back with the new value.
        answers = [self._limit(link, channel), self._end_consuming(link, channel), self._consume(link, channel)]
        await asyncio.wait(answers)

    async def cancel(self) -> None:
        if self._is_cancelled:
            return
        self._is_cancelled = True
        link, channel = self._link, self._channel
        try:
            await self.stop()
            await self._until_begun()
            if link is not None and channel is not None:
                await asyncio.wait([self._end_consuming(link, channel)])
        except asyncio.CancelledError:
            if link is not None and channel is not None:  # rather give back what is in hand than go on receiving
                link.abandon(channel)
            raise

    async def wait_ended(self) -> None:
        await asyncio.shield(self.ended)


async def declare(channel: Channel, declarations: Sequence[Declaration]) -> None:
    """All of them in one round trip. The first refusal closes the channel, and with it the answers of the rest."""
    waiters = [_declare_one(channel, declaration) for declaration in declarations]
    results = await asyncio.gather(*waiters, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _declare_one(channel: Channel, declaration: Declaration) -> asyncio.Future[Any]:
    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    match declaration:
        case Exchange(name=name, kind=kind, alternate=alternate):
            arguments = {"alternate-exchange": alternate} if alternate else {}
            fixed = (0, name, kind.value, False, True, False, False, False, arguments)
            channel.request(waiter, methods.EXCHANGE_DECLARE_OK, methods.EXCHANGE_DECLARE, *fixed)
        case Queue(name=name, exclusive=exclusive):
            flags = (False, not exclusive, exclusive, False, False)
            fixed_queue = (0, name, *flags, queue_arguments(declaration))
            channel.request(waiter, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, *fixed_queue)
        case Binding(exchange=exchange, queue=queue, key=key):
            channel.request(
                waiter, methods.QUEUE_BIND_OK, methods.QUEUE_BIND, 0, queue, exchange, key, False, _match(declaration)
            )
        case Relay(exchange=exchange, to=to, key=key):
            channel.request(waiter, methods.EXCHANGE_BIND_OK, methods.EXCHANGE_BIND, 0, to, exchange, key, False, {})
    return waiter


def queue_arguments(queue: Queue) -> dict[str, Any]:
    """Only what was asked for: an argument that is not there can later be set by a policy."""
    wished = {
        "x-queue-type": "quorum" if queue.quorum else None,
        "x-expires": _milliseconds(queue.expires_s),
        "x-message-ttl": _milliseconds(queue.message_ttl_s),
        "x-max-length": queue.max_length,
        "x-overflow": queue.overflow.value if queue.max_length is not None else None,
        "x-dead-letter-exchange": queue.dead_letter_exchange,
        "x-dead-letter-routing-key": queue.dead_letter_key,
        "x-max-priority": queue.max_priority,
        "x-single-active-consumer": queue.single_active_consumer or None,
    }
    return {name: value for name, value in wished.items() if value is not None}


def _checked(prefetch: int) -> int:
    if not 1 <= prefetch <= MAX_PREFETCH:
        raise SettingError(f"prefetch is {prefetch}; use 1 to {MAX_PREFETCH} (AMQP would take 0 for no limit at all)")
    return prefetch


def _milliseconds(seconds: float | None) -> int | None:
    """No time at all only where that was said."""
    return round(seconds * 1000) or int(seconds > 0) if seconds is not None else None


def _match(binding: Binding) -> dict[str, Any]:
    if not binding.headers and not binding.match_any:
        return {}
    return {**binding.headers, "x-match": "any" if binding.match_any else "all"}
