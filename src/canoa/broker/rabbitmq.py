"""The broker port over the network: RabbitMQ 3.10 to 4.x, by AMQP 0-9-1.

Publishing and consuming use separate connections, so that an alarm which blocks publishers does not block
acknowledgements. Recovery, confirms and consuming are in `broker/amqp/`; here they are put together.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from canoa.broker.amqp import methods
from canoa.broker.amqp.consumer import AmqpConsumer, declare
from canoa.broker.amqp.engine import Channel, Login
from canoa.broker.amqp.errors import NOT_FOUND, AmqpError, ClosedByBroker
from canoa.broker.amqp.keeper import LinkKeeper, translated
from canoa.broker.amqp.link import Address, Link
from canoa.broker.amqp.publisher import Publisher
from canoa.broker.port import (
    Broker,
    Consumer,
    Declaration,
    Depth,
    OnDelivery,
    Publication,
    PublishOutcome,
)
from canoa.errors import BrokerUnreachable, QueueMissing, SettingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")


class RabbitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heartbeat_s: int = 10  # a silently dead link is found within twice this; lower finds it sooner, costs traffic
    connect_timeout_s: float = 10.0
    publish_timeout_s: float = 30.0  # how long a publish waits for a link, an alarm's end, or a confirm
    window: int = 2000  # unconfirmed messages at once; wider is faster up to here (measured), and leaves more in doubt
    login_patience_s: float = 60.0  # a login refused for longer than this after a cut ends consumers loudly


class RabbitBroker:
    """`url`: `amqp://user:password@host:port/vhost` (or `amqps`)."""

    def __init__(self, url: str, *, settings: RabbitSettings | None = None, name: str = "canoa") -> None:
        self._address, self._login = parse_url(url)
        self._settings = settings or RabbitSettings()
        self._name = f"{name} ({os.getpid()})"
        self._publishing: LinkKeeper | None = None
        self._consuming: LinkKeeper | None = None
        self._publisher: Publisher | None = None
        self._consumers: set[AmqpConsumer] = set()

    def __repr__(self) -> str:
        return f"RabbitBroker({self._address}, {self._login})"

    async def open(self) -> None:
        if self._publisher is not None:
            return
        publishing, consuming = self._keeper("publish"), self._keeper("consume")
        try:
            await publishing.open()
            await consuming.open()
        except BaseException:
            await publishing.aclose()
            raise
        self._publishing, self._consuming = publishing, consuming
        publisher = Publisher(publishing, window=self._settings.window, timeout_s=self._settings.publish_timeout_s)
        await publisher.start()
        self._publisher = publisher

    def _keeper(self, purpose: str) -> LinkKeeper:
        name = f"{self._name} {purpose}"
        connect = partial(
            Link.connect,
            self._address,
            self._login,
            heartbeat_s=self._settings.heartbeat_s,
            name=name,
            within_s=self._settings.connect_timeout_s,
        )
        return LinkKeeper(connect, name=name, patience_s=self._settings.login_patience_s)

    async def aclose(self) -> None:
        for consumer in list(self._consumers):
            await consumer.stop()
        self._consumers.clear()
        if self._publisher is not None:
            await self._publisher.aclose()
        for keeper in (self._consuming, self._publishing):
            if keeper is not None:
                await keeper.aclose()

    @property
    def is_blocked(self) -> bool:
        return self._publisher is not None and self._publisher.is_blocked

    # --- Looking and declaring ------------------------------------------------------------------

    async def declare(self, *declarations: Declaration) -> None:
        async def work(link: Link, channel: Channel) -> None:
            await declare(link, channel, declarations)

        await self._on_own_channel(work)

    async def depth(self, queue: str) -> Depth:
        async def work(link: Link, channel: Channel) -> Depth:
            passive: tuple[Any, ...] = (0, queue, True, False, False, False, False, {})
            _, messages, consumers = await link.request(
                channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, *passive
            )
            return Depth(messages, consumers)

        return await self._on_own_channel(work, queue=queue)

    async def delete_queue(self, queue: str) -> None:
        async def work(link: Link, channel: Channel) -> None:
            delete = (0, queue, False, False, False)
            await link.request(channel, methods.QUEUE_DELETE_OK, methods.QUEUE_DELETE, *delete)

        await self._on_own_channel(work)

    async def purge(self, queue: str) -> int:
        async def work(link: Link, channel: Channel) -> int:
            (count,) = await link.request(channel, methods.QUEUE_PURGE_OK, methods.QUEUE_PURGE, 0, queue, False)
            return int(count)

        return await self._on_own_channel(work, queue=queue)

    async def _on_own_channel(self, work: Callable[[Link, Channel], Awaitable[T]], *, queue: str | None = None) -> T:
        """A refusal closes the channel it came on, so every such request gets a channel of its own."""
        if self._consuming is None:
            raise BrokerUnreachable("the broker is not open")
        try:
            async with asyncio.timeout(self._settings.publish_timeout_s):
                link = await self._consuming.connected()
                channel = await link.channel()
                result = await work(link, channel)
                closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                channel.close(closed)
                await closed
                return result
        except TimeoutError:
            raise BrokerUnreachable(f"no answer from the broker: {self._consuming.last_error}") from None
        except ClosedByBroker as exc:
            if exc.code == NOT_FOUND and queue is not None:
                raise QueueMissing(queue) from exc
            raise translated(exc) from exc
        except AmqpError as exc:
            raise translated(exc) from exc

    # --- Publishing -----------------------------------------------------------------------------

    def post(self, publication: Publication, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self._opened_publisher().post(publication, on_outcome)

    async def publish(self, publication: Publication) -> None:
        await self._opened_publisher().publish(publication)

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        return await self._opened_publisher().publish_many(publications)

    def _opened_publisher(self) -> Publisher:
        if self._publisher is None:
            raise BrokerUnreachable("the broker is not open")
        return self._publisher

    # --- Consuming ------------------------------------------------------------------------------

    async def consume(
        self,
        queue: str,
        on_delivery: OnDelivery,
        *,
        prefetch: int,
        topology: Sequence[Declaration] = (),
    ) -> Consumer:
        if self._consuming is None:
            raise BrokerUnreachable("the broker is not open")
        if prefetch < 1:
            raise SettingError(f"prefetch is {prefetch}; use 1 or more (AMQP would take 0 for no limit at all)")
        consumer = AmqpConsumer(
            self._consuming,
            queue,
            on_delivery,
            prefetch=prefetch,
            topology=topology,
            on_cancel=self._consumers.discard,
        )
        await consumer.start()
        self._consumers.add(consumer)
        return consumer


def parse_url(url: str) -> tuple[Address, Login]:
    """Where and as whom. Errors never show the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise SettingError(
            f"the broker URL cannot be read ({exc}); write amqp://user:password@host:5672/vhost"
        ) from None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        shown = f"{parts.scheme}://…" if parts.scheme else repr(url[:20])
        raise SettingError(f"broker URL {shown} is not AMQP; write amqp://user:password@host:5672/vhost")
    tls = ssl.create_default_context() if parts.scheme == "amqps" else None
    address = Address(parts.hostname, port or (5671 if tls else 5672), tls)
    vhost = unquote(parts.path[1:]) if parts.path not in ("", "/") else "/"
    return address, Login(unquote(parts.username or "guest"), unquote(parts.password or "guest"), vhost)


_port: type[Broker] = RabbitBroker
