"""What comes back: a connection that is made again after every loss, and a channel that is set up again on it.

`LinkKeeper` owns the connection, `ChannelKeeper` one channel and whatever lives there (a publisher, a consumer).
Both end in one of two ways: closed by us, or loudly, with the reason why going on is impossible.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from canoa.broker.amqp.errors import AmqpError, ClosedByBroker, LinkLost
from canoa.broker.amqp.link import Link, refuses_login
from canoa.errors import BrokerRefusedLogin, BrokerRefusedOperation, BrokerUnreachable, CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from canoa.broker.amqp.engine import Channel

log = get_logger(__name__)

FIRST_DELAY_S: Final = 0.1
MAX_DELAY_S: Final = 10.0
STABLE_AFTER_S: Final = 5.0
"""A link or channel that lived this long starts its backoff anew."""


def delays() -> Iterator[float]:
    """Exponential, capped, with full jitter: a thousand workers do not come back in the same moment."""
    delay_s = FIRST_DELAY_S
    while True:
        yield random.uniform(delay_s / 2, delay_s)
        delay_s = min(delay_s * 2, MAX_DELAY_S)


class LinkKeeper:
    """Keeps one link alive. `patience_s`: how long a refused login is taken for a broker that is still starting."""

    def __init__(self, connect: Callable[[], Awaitable[Link]], *, name: str, patience_s: float) -> None:
        self._connect = connect
        self._name = name
        self._patience_s = patience_s
        self._link: Link | None = None
        self._is_up = asyncio.Event()
        self._failure: CanoaError | None = None
        self._task: asyncio.Task[None] | None = None
        self.last_error = ""

    async def open(self) -> None:
        """Make the first link, without a second try: a wrong address or password should be heard at once."""
        if self._task is not None:
            return
        try:
            link = await self._connect()
        except AmqpError as exc:
            raise translated(exc) from exc
        self._set_link(link)
        self._task = asyncio.get_running_loop().create_task(self._keep(link), name=f"{self._name}.keep")

    async def connected(self) -> Link:
        """The link, as soon as there is one; raises when there never will be."""
        while (link := self.link) is None:
            if self._failure is not None:
                raise self._failure
            # Channels hear of the end before `_keep` does: a link that is over must not be taken for a new one.
            self._is_up.clear()
            await self._is_up.wait()
        return link

    @property
    def link(self) -> Link | None:
        return None if self._link is None or self._link.engine.is_over else self._link

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._failure = self._failure or BrokerUnreachable("the broker object is closed")
        self._is_up.set()
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    def _set_link(self, link: Link) -> None:
        self._link = link
        self._is_up.set()

    async def _keep(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        while True:
            error = await link.closed
            self._link = None
            self._is_up.clear()
            self.last_error = str(error)
            log.warning("broker_link_lost", link=self._name, reason=str(error))
            since = loop.time()
            try:
                link = await self._connect_again(since)
            except CanoaError as exc:
                log.error("broker_link_given_up", link=self._name, reason=str(exc))
                self._failure = exc
                self._is_up.set()
                return
            log.warning("broker_link_restored", link=self._name, after_s=round(loop.time() - since, 2))
            self._set_link(link)

    async def _connect_again(self, since: float) -> Link:
        loop = asyncio.get_running_loop()
        for delay_s in delays():
            await asyncio.sleep(delay_s)
            try:
                return await self._connect()
            except AmqpError as exc:
                self.last_error = str(exc)
                if refuses_login(exc) and loop.time() - since > self._patience_s:
                    raise translated(exc) from exc
                log.info("broker_still_away", link=self._name, reason=str(exc))
        raise AssertionError("delays() never ends")


class ChannelKeeper:
    """Keeps one channel set up on a kept link. Subclasses say what set up means.

    `ended` resolves when it is closed by us, and raises when setting up is refused for good.
    """

    def __init__(self, links: LinkKeeper, *, name: str) -> None:
        self._links = links
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost: asyncio.Future[AmqpError] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _set_up(self, link: Link, channel: Channel) -> None:
        raise NotImplementedError

    def _torn_down(self, error: AmqpError) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Return once set up for the first time, or raise why it cannot be."""
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"{self._name}.keep")
        await asyncio.shield(self._first)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._end(None)

    def _lose(self, error: AmqpError) -> None:
        if not self._lost.done():
            self._lost.set_result(error)

    async def _keep(self) -> None:
        try:
            await self._keep_up()
        except CanoaError as exc:
            self._end(exc)

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        waits = delays()
        while True:
            link = await self._links.connected()
            self._lost = loop.create_future()
            started = loop.time()
            error = await self._live_once(link)
            self._torn_down(error)
            if link.engine.is_over:
                continue
            log.warning("broker_channel_lost", channel=self._name, reason=str(error))
            if loop.time() - started > STABLE_AFTER_S:
                waits = delays()
            await asyncio.sleep(next(waits))

    async def _live_once(self, link: Link) -> AmqpError:
        """From set-up to loss; returns the reason, or raises when the broker will never agree to the set-up."""
        try:
            channel = await link.channel()
            channel.on_closed = self._lose
            await self._set_up(link, channel)
        except ClosedByBroker as exc:
            if exc.whole_connection:
                return exc
            raise translated(exc) from exc
        except AmqpError as exc:
            return exc
        if not self._first.done():
            self._first.set_result(None)
        return await self._lost

    def _end(self, error: CanoaError | None) -> None:
        for future in (self._first, self.ended):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # seen here; whoever awaits it hears it too


def translated(error: AmqpError) -> CanoaError:
    """Our errors stop at the adapter: what the rest of Canoa hears instead."""
    if isinstance(error, ClosedByBroker):
        if refuses_login(error):
            return BrokerRefusedLogin(
                f"the broker refuses the login: {error.text}; check user, password and virtual host"
            )
        if not error.whole_connection:
            return BrokerRefusedOperation(f"the broker refuses: {error.text}")
    if isinstance(error, LinkLost):
        return BrokerUnreachable(f"no link to the broker: {error}")
    return BrokerUnreachable(f"the link to the broker ended: {error}")
