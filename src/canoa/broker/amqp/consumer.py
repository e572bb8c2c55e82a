"""Consuming that recovers: a subscription on a channel of its own, set up again after every loss.

A channel per consumer keeps trouble apart: what closes one leaves the others alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from canoa.broker.amqp import methods
from canoa.broker.amqp.errors import NOT_FOUND, AmqpError, ClosedByBroker, LinkLost
from canoa.broker.amqp.keeper import ChannelKeeper, LinkKeeper
from canoa.broker.port import Binding, Declaration, Delivery, Exchange, Message, OnDelivery, Queue, Settlement
from canoa.errors import QueueMissing
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.broker.amqp.engine import Channel
    from canoa.broker.amqp.link import Link

log = get_logger(__name__)


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
        on_cancel: Callable[[AmqpConsumer], None],
    ) -> None:
        super().__init__(links, name=f"consumer[{queue}]")
        self._on_cancel = on_cancel
        self.queue = queue
        self._on_delivery = on_delivery
        self._prefetch = prefetch
        self._topology = topology
        self._tag = ""
        self._consumed = 0
        self._channel: Channel | None = None
        self._is_cancelled = False

    async def _set_up(self, link: Link, channel: Channel) -> None:
        channel.on_deliver = self._receiver(channel)
        channel.on_cancelled = lambda: self._on_cancelled(link, channel)
        await declare(link, channel, self._topology)
        try:
            await self._consume(link, channel)
        except ClosedByBroker as exc:
            if exc.code == NOT_FOUND:
                raise QueueMissing(self.queue) from exc
            raise
        self._channel = channel

    async def _consume(self, link: Link, channel: Channel) -> None:
        self._consumed += 1
        self._tag = f"{self.queue}#{self._consumed}"[-255:]
        await link.request(channel, methods.BASIC_QOS_OK, methods.BASIC_QOS, 0, self._prefetch, False)
        await link.request(
            channel, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, 0, self.queue, self._tag, *(False,) * 4, {}
        )

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
        if not self._is_cancelled and not link.engine.is_over:
            channel.close(asyncio.get_running_loop().create_future())
            self._lose(LinkLost(f"the broker cancelled the consumer of {self.queue!r}"))

    def _torn_down(self, error: AmqpError) -> None:
        self._channel = None

    def settle_through(self, delivery: Delivery, how: Settlement = Settlement.ACK) -> bool:
        assert isinstance(delivery, AmqpDelivery)
        return delivery.settle_through(how)

    async def set_prefetch(self, prefetch: int) -> None:
        """AMQP fixes a consumer's prefetch when it starts, so it is ended and begun anew on the same channel."""
        self._prefetch = prefetch
        link, channel = self._links.link, self._channel
        if link is None or channel is None or self._is_cancelled:
            return
        try:
            await link.request(channel, methods.BASIC_CANCEL_OK, methods.BASIC_CANCEL, self._tag, False)
            await self._consume(link, channel)
        except AmqpError:
            return  # the channel is gone: it comes back with the new value

    async def cancel(self) -> None:
        if self._is_cancelled:
            return
        self._is_cancelled = True
        self._on_cancel(self)
        await self.stop()
        link, channel = self._links.link, self._channel
        if link is not None and channel is not None:
            try:
                await link.request(channel, methods.BASIC_CANCEL_OK, methods.BASIC_CANCEL, self._tag, False)
            except AmqpError:
                return  # no channel, no deliveries

    async def wait_ended(self) -> None:
        await asyncio.shield(self.ended)


async def declare(link: Link, channel: Channel, declarations: Sequence[Declaration]) -> None:
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


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _match(binding: Binding) -> dict[str, Any]:
    if not binding.headers and not binding.match_any:
        return {}
    return {**binding.headers, "x-match": "any" if binding.match_any else "all"}
