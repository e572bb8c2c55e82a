"""The broker port over the network: RabbitMQ 3.10 to 4.x, by AMQP 0-9-1.

Publishing and consuming use separate connections, so that an alarm which blocks publishers does not block
acknowledgements. Recovery, confirms and consuming are in `broker/amqp/`; here they are put together.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from canoa.broker.amqp import methods
from canoa.broker.amqp.consumer import AmqpConsumer, declare
from canoa.broker.amqp.engine import Channel, Login
from canoa.broker.amqp.errors import AmqpError, ClosedByBroker
from canoa.broker.amqp.keeper import LinkKeeper
from canoa.broker.amqp.link import Address, Link
from canoa.broker.amqp.publisher import Publisher
from canoa.broker.amqp.refusals import lacks_queue, translated
from canoa.broker.amqp.tls import Tls
from canoa.broker.port import (
    Broker,
    Consumer,
    Declaration,
    Depth,
    OnDelivery,
    Publication,
    PublishOutcome,
)
from canoa.errors import BrokerUnreachable, CanoaError, QueueMissing, SettingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from canoa.settings import Settings

T = TypeVar("T")
NO_FILES = Tls()


class RabbitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heartbeat_s: int = 10  # a silently dead link is found within twice this; lower finds it sooner, costs traffic
    connect_timeout_s: float = 10.0
    publish_timeout_s: float = 30.0  # how long a publish waits for a link, an alarm's end, or a confirm
    window: int = 2000  # unconfirmed messages at once; wider is faster up to here (measured), and leaves more in doubt
    login_patience_s: float = 60.0  # a login refused for longer than this after a cut ends consumers loudly
    reconnect_max_s: float = 10.0  # the longest pause between two tries; lower comes back sooner, tries more often
    tls: Tls = NO_FILES  # for amqps://

    def __post_init__(self) -> None:
        if self.heartbeat_s < 1 or self.window < 1:
            raise SettingError(
                f"heartbeat_s={self.heartbeat_s}, window={self.window}; use 1 or more for both "
                "(without a heartbeat a silently dead link is never found)"
            )


def rabbit_settings(settings: Settings) -> RabbitSettings:
    """What the app's settings say about the link."""
    return RabbitSettings(
        heartbeat_s=settings.heartbeat_s,
        publish_timeout_s=settings.submit_timeout_s,
        tls=Tls(ca=settings.tls_ca, cert=settings.tls_cert, key=settings.tls_key, verify=settings.tls_verify),
    )


class RabbitBroker:
    """`url`: `amqp://user:password@host:port/vhost` (or `amqps`)."""

    def __init__(self, url: str, *, settings: RabbitSettings | None = None, name: str = "canoa") -> None:
        self._settings = settings or RabbitSettings()
        self._address, self._login = parse_url(url, self._settings.tls)
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
        publisher = Publisher(publishing, window=self._settings.window, timeout_s=self._settings.publish_timeout_s)
        try:
            await publishing.open()
            await consuming.open()
            await self._start(publisher)
        except BaseException:
            await asyncio.gather(publishing.aclose(), consuming.aclose())
            raise
        self._publishing, self._consuming, self._publisher = publishing, consuming, publisher
        publisher.ended.add_done_callback(self._on_publisher_ended)

    def _on_publisher_ended(self, ended: asyncio.Future[None]) -> None:
        """Who can no longer publish can no longer answer: consuming on would only pile up work. So all end, loudly."""
        error = ended.exception()
        if isinstance(error, CanoaError):
            for consumer in list(self._consumers):
                consumer.fail(error)

    async def _start(self, publisher: Publisher) -> None:
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await publisher.start()
        except TimeoutError:
            raise BrokerUnreachable(f"the broker at {self._address} logs us in, but opens no channel") from None

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
        return LinkKeeper(
            connect,
            name=name,
            patience_s=self._settings.login_patience_s,
            max_delay_s=self._settings.reconnect_max_s,
        )

    async def aclose(self) -> None:
        channels = [*self._consumers, *([self._publisher] if self._publisher else [])]
        await asyncio.gather(*(channel.stop() for channel in channels))
        links = [keeper for keeper in (self._publishing, self._consuming) if keeper]
        await asyncio.gather(*(keeper.aclose() for keeper in links))  # at once: a dead link takes a while to leave

    @property
    def is_linked(self) -> bool:
        return self._publisher is not None and self._publisher.is_linked

    @property
    def is_blocked(self) -> bool:
        return self._publisher is not None and self._publisher.is_blocked

    @property
    def server(self) -> dict[str, Any]:
        """What the broker said about itself at login: product, version, …; empty while there is no link."""
        link = self._consuming.link if self._consuming else None
        return link.engine.server_properties if link else {}

    # --- Looking and declaring ------------------------------------------------------------------

    async def declare(self, *declarations: Declaration) -> None:
        async def work(_link: Link, channel: Channel) -> None:
            await declare(channel, declarations)

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
        within_s = self._settings.publish_timeout_s
        try:
            async with asyncio.timeout(within_s):
                link = await self._consuming.connected()
                channel = await link.channel()
                try:
                    return await work(link, channel)
                finally:
                    link.abandon(channel)
        except TimeoutError:
            last = f": {self._consuming.last_error}" if self._consuming.link is None else ""
            raise BrokerUnreachable(f"no answer from the broker within {within_s:g} s{last}") from None
        except ClosedByBroker as exc:
            if queue is not None and lacks_queue(exc, queue):
                raise QueueMissing(queue) from exc
            raise translated(exc) from exc
        except AmqpError as exc:
            raise translated(exc) from exc

    # --- Publishing -----------------------------------------------------------------------------

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        self._opened_publisher().post(publication, on_outcome, later=later)

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
        on_recovered: Callable[[float], None] | None = None,
    ) -> Consumer:
        if self._consuming is None:
            raise BrokerUnreachable("the broker is not open")
        consumer = AmqpConsumer(
            self._consuming, queue, on_delivery, prefetch=prefetch, topology=topology, on_recovered=on_recovered
        )
        self._consumers.add(consumer)
        consumer.ended.add_done_callback(lambda _: self._consumers.discard(consumer))
        await consumer.start()
        return consumer


def parse_url(url: str, tls: Tls = NO_FILES) -> tuple[Address, Login]:
    """Where and as whom: without a user, the client certificate says who. Errors never show the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text quotes what it took for the port, which may well be the password
        raise SettingError(
            "the port of the broker URL is not a number; write amqp://user:password@host:5672/vhost "
            "(in user and password, / is %2F, : is %3A, @ is %40)"
        ) from None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        shown = f"{parts.scheme}://…" if "://" in url else "without amqp://"
        raise SettingError(f"a broker URL {shown} is not AMQP; write amqp://user:password@host:5672/vhost")
    is_tls = parts.scheme == "amqps"
    address = Address(parts.hostname, port or (5671 if is_tls else 5672), tls if is_tls else None)
    vhost = unquote(parts.path[1:]) if parts.path not in ("", "/") else "/"
    if is_tls and tls.cert and not parts.username:
        return address, Login("", "", vhost, is_external=True)
    return address, Login(unquote(parts.username or "guest"), unquote(parts.password or "guest"), vhost)


_port: type[Broker] = RabbitBroker
