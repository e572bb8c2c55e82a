"""One connection over a real socket: asyncio feeds the engine, flushes what it wants to say, and keeps the heartbeat.

A link lives once. `keeper.py` makes the next one.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
from typing import Any, Final, cast

import msgspec

from canoa.broker.amqp import tls as tls_module
from canoa.broker.amqp.engine import LARGE_BYTES, Channel, Connection, Login
from canoa.broker.amqp.errors import AmqpError, LinkLost, ProtocolError, SetupMismatch
from canoa.broker.amqp.methods import HEARTBEAT, Method
from canoa.errors import SettingError
from canoa.logs import get_logger

log = get_logger(__name__)

CLOSE_WITHIN_S: Final = 2.0
"""A broker that does not answer our goodbye in time is left without one."""

GATHER_S: Final = 0.005
"""How long frames that are not urgent wait for company. Longer spares both sides writes where little happens, and lets
what was done in this time be done again should the process be killed."""

REST_S: Final = 0.02
"""How long a link rests at most: being woken for a confirm costs both sides more than the confirm itself, and where
there are few cores it costs those who have work. What is known from confirms alone is known later by this."""

TICKS_OF_SILENCE: Final = 4
"""Two to a heartbeat, so a silently dead peer is found within two heartbeats. RabbitMQ speaks once per tick."""


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: tls_module.Tls | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Link(asyncio.Protocol):
    """Use `connect`. `closed` resolves to the reason once the link is over."""

    def __init__(self, address: Address, login: Login, *, heartbeat_s: int, name: str) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._missed_ticks = 0
        self._has_sent = False
        self._is_gathering = False
        self._resting: asyncio.TimerHandle | None = None
        self._has_heard = False  # since it last rested
        self._tick: asyncio.TimerHandle | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[AmqpError] = self._loop.create_future()
        self.engine = Connection(
            login, heartbeat_s=heartbeat_s, properties=_client_properties(name), wake=self._on_outgoing
        )
        self.engine.on_open = self._on_open
        self.engine.on_closed = self._on_over

    @classmethod
    async def connect(cls, address: Address, login: Login, *, heartbeat_s: int, name: str, within_s: float) -> Link:
        """A link that is logged in, or `LinkLost` (no such place, no answer), `ClosedByBroker` (login refused) or
        `SetupMismatch` (TLS or not, which certificates)."""
        link = cls(address, login, heartbeat_s=heartbeat_s, name=name)
        try:
            async with asyncio.timeout(within_s):
                await link._open()
        except TimeoutError:
            silent = LinkLost(f"{address} did not answer within {within_s:g} s")
            link._abort(silent)
            raise silent from None
        except (OSError, UnicodeError) as exc:  # the latter for a host name that cannot be one
            error = link._reason(exc)
            raise type(error)(f"{address}: {error}") from exc
        except SetupMismatch as exc:
            raise SetupMismatch(f"{address}: {exc}") from exc
        except (LinkLost, ProtocolError) as exc:
            raise LinkLost(f"{address}: {exc}") from exc
        except BaseException:
            link._abort(LinkLost("given up"))
            raise
        return link

    async def _open(self) -> None:
        address = self._address
        try:
            context = await asyncio.to_thread(tls_module.new_context, address.tls) if address.tls else None
        except SettingError as exc:
            raise SetupMismatch(str(exc)) from exc
        await self._loop.create_connection(lambda: self, address.host, address.port, ssl=context)
        await self._opened

    async def channel(self) -> Channel:
        opened: asyncio.Future[Any] = self._loop.create_future()
        channel = self.engine.open_channel(opened)
        try:
            await opened
        except BaseException:
            self.abandon(channel)
            raise
        return channel

    def abandon(self, channel: Channel) -> None:
        """Close it without waiting for the answer. What it holds goes back to the queue."""
        channel.close(self._loop.create_future())

    def request(
        self, channel: Channel, answer: Method, method: Method, *arguments: Any
    ) -> asyncio.Future[tuple[Any, ...]]:
        """Sent at once; the answer can be awaited later."""
        waiter: asyncio.Future[tuple[Any, ...]] = self._loop.create_future()
        waiter.add_done_callback(_seen)
        channel.request(waiter, answer, method, *arguments)
        return waiter

    async def aclose(self) -> None:
        """Say goodbye; whatever was written before goes out first."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.hear()
        self.engine.close(waiter)
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._abort(LinkLost("closed"))

    def _abort(self, error: AmqpError) -> None:
        self.engine.end(error)
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one, without being a subclass
        self.engine.start()

    def data_received(self, data: bytes) -> None:
        self._missed_ticks = 0
        self._has_heard = True
        try:
            self.engine.receive(data)
        except ProtocolError as exc:
            self._abort(exc)
        except Exception as exc:  # a bug of ours: without this the link would stay up and deaf
            log.exception("amqp_engine_failed")
            self._abort(LinkLost(f"internal error: {exc!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None  # of no more use, and asyncio's for TLS fails when asked about its buffer now
        self.engine.end(self._reason(exc))

    def _reason(self, exc: Exception | None) -> AmqpError:
        """Why there is no line, or no longer."""
        if self.engine.has_met_tls:
            return SetupMismatch(tls_module.SPEAKS_TLS)
        if exc is None:
            return LinkLost("the broker hung up")
        about_tls = tls_module.explained(exc, self._address.host)
        return about_tls or LinkLost(getattr(exc, "strerror", None) or str(exc))

    # --- Resting ------------------------------------------------------------------------------

    def rest(self) -> None:
        """Leave what comes where it is, until `hear` or for a moment: for when nobody waits for any of it.

        Not with TLS, where it would be read all the same. Nor before something was heard since the last rest: paused
        again in the same turn of the loop, nothing would be read at all."""
        if self._resting is not None or not self._has_heard or self._address.tls is not None:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._has_heard = False
            self._transport.pause_reading()
            self._resting = self._loop.call_later(REST_S, self.hear)

    def hear(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # --- Writing ------------------------------------------------------------------------------

    def _on_outgoing(self, is_urgent: bool) -> None:
        """The first frame of a turn of the loop leaves at once, for a short way; those that follow leave together, at a
        third of the cost of writing each on its own. What is large gains nothing by company, and leaves at once: the
        broker works on it while the rest is made."""
        if not is_urgent:
            self._loop.call_later(GATHER_S, self._flush)
        elif not self._is_gathering:
            self._is_gathering = True
            self._loop.call_soon(self._end_turn)
            self._flush()
        elif len(self.engine.outgoing[-1]) >= LARGE_BYTES:
            self._flush()

    def _end_turn(self) -> None:
        self._is_gathering = False
        self._flush()

    def _flush(self) -> None:
        if self._transport is not None and self.engine.outgoing:
            self._has_sent = True
            self._transport.write(self.engine.take_outgoing())

    # --- Life -----------------------------------------------------------------------------------

    def _on_open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)
        if self.engine.heartbeat_s:
            self._tick = self._loop.call_later(self.engine.heartbeat_s / 2, self._on_tick)

    def _on_tick(self) -> None:
        """Ticks are counted, not seconds: a process that was stopped for a minute has missed only one."""
        self._missed_ticks += 1
        if self._missed_ticks >= TICKS_OF_SILENCE:
            self._abort(LinkLost(f"silent for {2 * self.engine.heartbeat_s} s (two heartbeats)"))
            return
        if not self._has_sent:
            self.engine.send(HEARTBEAT)
        self._has_sent = False
        self._tick = self._loop.call_later(self.engine.heartbeat_s / 2, self._on_tick)

    def _on_over(self, error: AmqpError) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._flush_last_words()
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # seen: connect() may have given up already
        if not self.closed.done():
            self.closed.set_result(error)

    def _flush_last_words(self) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.close()
            if self._transport.get_write_buffer_size():  # a peer that reads no more must not keep the socket open
                self._loop.call_later(CLOSE_WITHIN_S, self._transport.abort)


def _seen(waiter: asyncio.Future[Any]) -> None:
    """Whoever asked may no longer be interested: then a failure is no news to anybody."""
    if not waiter.cancelled():
        waiter.exception()


def _client_properties(name: str) -> dict[str, Any]:
    return {
        "product": "Canoa",
        "version": importlib.metadata.version("canoa"),
        "platform": f"Python {platform.python_version()}",
        "connection_name": name,
    }
