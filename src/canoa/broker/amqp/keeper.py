"""What comes back: a connection that is made again after every loss, and a channel that is set up again on it.

`LinkKeeper` owns the connection, `ChannelKeeper` one channel and whatever lives there (a publisher, a consumer).
Both end in one of two ways: closed by us, or loudly, with the reason why going on is impossible.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.broker.amqp.errors import AmqpError, CertificateOutOfDate, ClosedByBroker, SetupMismatch
from canoa.broker.amqp.refusals import may_pass, refuses_login, translated
from canoa.broker.opening import no_link
from canoa.errors import BrokerUnreachable, CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from canoa.broker.amqp.engine import Channel
    from canoa.broker.amqp.link import Link

log = get_logger(__name__)

FIRST_DELAY_S: Final = 0.1
MAX_CHANNEL_DELAY_S: Final = 1.0
"""Shorter than for links: the broker is there and answers, and one channel a second costs it nothing."""
STABLE_AFTER_S: Final = 5.0
"""A link or channel that lived this long starts its backoff anew."""


def delays(max_s: float) -> Iterator[float]:
    """Exponential, capped, with jitter: a thousand workers do not come back in the same moment."""
    delay_s = min(FIRST_DELAY_S, max_s)
    while True:
        yield random.uniform(delay_s / 2, delay_s)
        delay_s = min(delay_s * 2, max_s)


class LinkKeeper:
    """Keeps one link alive. `patience_s`: how long a refusal is taken for a broker that is still starting."""

    def __init__(
        self, connect: Callable[[], Awaitable[Link]], *, name: str, patience_s: float, max_delay_s: float
    ) -> None:
        self._connect = connect
        self._name = name
        self._max_delay_s = max_delay_s
        self._link: Link | None = None
        self._is_up = asyncio.Event()
        self._failure: CanoaError | None = None
        self._task: asyncio.Task[None] | None = None
        self.patience_s = patience_s
        self.last_error = ""

    async def open(self) -> None:
        """Make the first link, without a second try: a wrong address or password should be heard at once."""
        if self._task is not None:
            return
        try:
            link = await self._connect()
        except (ClosedByBroker, SetupMismatch, CertificateOutOfDate) as exc:
            raise translated(exc) from exc
        except AmqpError as exc:
            raise no_link(f": {exc}") from exc
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
        self._fail(self._failure or BrokerUnreachable("the broker object is closed"))
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()

    def _set_link(self, link: Link) -> None:
        self._link = link
        self._is_up.set()

    def _fail(self, failure: CanoaError) -> None:
        self._failure = failure
        self._is_up.set()

    async def _keep(self, link: Link) -> None:
        try:
            await self._keep_up(link)
        except CanoaError as exc:
            log.error("broker_link_given_up", link=self._name, reason=str(exc))
            self._fail(exc)
        except Exception as exc:  # a bug of ours: without this everyone would wait for a link that never comes
            log.exception("broker_link_keeper_failed", link=self._name)
            self._fail(BrokerUnreachable(f"internal error: {exc!r}"))

    async def _keep_up(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        waits = delays(self._max_delay_s)
        while True:
            up_since = loop.time()
            error = await link.closed
            self._link = None
            self._is_up.clear()
            self.last_error = str(error)
            log.warning("broker_link_lost", link=self._name, reason=str(error))
            down_since = loop.time()
            if down_since - up_since > STABLE_AFTER_S:
                waits = delays(self._max_delay_s)
            link = await self._connect_again(waits)
            log.warning("broker_link_restored", link=self._name, after_s=round(loop.time() - down_since, 2))
            self._set_link(link)

    async def _connect_again(self, waits: Iterator[float]) -> Link:
        loop = asyncio.get_running_loop()
        refused_since: float | None = None
        for delay_s in waits:
            await asyncio.sleep(delay_s)
            try:
                return await self._connect()
            except AmqpError as exc:
                self.last_error = str(exc)
                refused_since = (refused_since or loop.time()) if refuses_login(exc) else None
                if refused_since is not None and loop.time() - refused_since > self.patience_s:
                    raise translated(exc) from exc
                log.info("broker_still_away", link=self._name, reason=str(exc))
        raise AssertionError("delays() never ends")


class ChannelKeeper(ABC):
    """Keeps one channel set up on a kept link. Subclasses say what set up means.

    `ended` resolves when it is closed by us, and raises when setting up is refused for good.
    """

    def __init__(self, links: LinkKeeper, *, name: str) -> None:
        self._links = links
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._refused_since: float | None = None
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @abstractmethod
    async def _set_up(self, link: Link, channel: Channel) -> None: ...

    @abstractmethod
    def _torn_down(self, error: AmqpError) -> None: ...

    async def start(self) -> None:
        """Return once set up for the first time, or raise why it cannot be."""
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"{self._name}.keep")
        try:
            await asyncio.shield(self._first)
        except asyncio.CancelledError:  # our caller will not wait, so nobody would ever stop it
            await self.stop()
            raise

    async def stop(self) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        finally:
            self._end(None)

    def fail(self, error: CanoaError) -> None:
        """End it loudly, for a reason that lies elsewhere."""
        if self._task is not None:
            self._task.cancel()
        self._end(error)

    async def _keep(self) -> None:
        try:
            await self._keep_up()
        except CanoaError as exc:
            self._end(exc)
        except Exception as exc:  # a bug of ours: without this it would be connected and deaf
            log.exception("broker_channel_keeper_failed", channel=self._name)
            self._end(CanoaError(f"internal error: {exc!r}"))

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        waits = delays(MAX_CHANNEL_DELAY_S)
        while True:
            link = await self._links.connected()
            started = loop.time()
            error = await self._live_once(link)
            self._torn_down(error)
            if link.engine.is_over:
                continue
            log.warning("broker_channel_lost", channel=self._name, reason=str(error))
            if loop.time() - started > STABLE_AFTER_S:
                waits = delays(MAX_CHANNEL_DELAY_S)
            await asyncio.sleep(next(waits))

    async def _live_once(self, link: Link) -> AmqpError:
        """From set-up to loss; returns the reason, or raises when the broker will never agree to the set-up."""
        # One per channel: the late end of an old channel must not be taken for that of a new one.
        lost: asyncio.Future[AmqpError] = asyncio.get_running_loop().create_future()
        try:
            channel = await link.channel()
            channel.on_closed = partial(_resolve, lost)
            try:
                await self._set_up(link, channel)
            except BaseException:  # stopped in the middle: a half-made consumer would go on receiving
                link.abandon(channel)
                raise
        except ClosedByBroker as exc:
            if exc.whole_connection or self._is_worth_waiting(exc):
                return exc
            raise translated(exc) from exc
        except AmqpError as exc:
            return exc
        self._refused_since = None
        if not self._first.done():
            self._first.set_result(None)
        return await lost

    def _is_worth_waiting(self, refusal: ClosedByBroker) -> bool:
        """Only for what was set up before: a first set-up hears every refusal at once."""
        now = asyncio.get_running_loop().time()
        self._refused_since = self._refused_since or now
        return self._first.done() and may_pass(refusal) and now - self._refused_since <= self._links.patience_s

    def _end(self, error: CanoaError | None) -> None:
        if not self.ended.done():
            _finish(self.ended, error)
        if not self._first.done():
            _finish(self._first, error or BrokerUnreachable("the broker object is closed"))


def _resolve(lost: asyncio.Future[AmqpError], error: AmqpError) -> None:
    if not lost.done():
        lost.set_result(error)


def _finish(future: asyncio.Future[None], error: CanoaError | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # seen here; whoever awaits it hears it too
