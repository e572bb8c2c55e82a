"""The protocol's state machine for one connection: bytes in, callbacks and bytes out. No socket, no clock, no asyncio.

`Connection.receive` takes what the socket brought; what must be sent gathers in `Connection.outgoing`, and `wake` is
called when that stops being empty. Whoever waits for an answer passes a `Waiter`, such as an asyncio future.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.broker.amqp import methods
from canoa.broker.amqp.channel import Channel, Waiter, ignore, tell
from canoa.broker.amqp.errors import AmqpError, ClosedByBroker, ClosedByUs, LinkLost, ProtocolError, SetupMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.amqp.methods import Method

__all__ = ["CAPABILITIES", "Channel", "Connection", "Login", "Waiter"]

_unpack_frame_head = struct.Struct(">BHI").unpack_from
_KINDS: Final = (methods.METHOD_FRAME, methods.HEADER_FRAME, methods.BODY_FRAME, methods.HEARTBEAT_FRAME)
_METHOD, _HEADER, _BODY, _HEARTBEAT = _KINDS
_END: Final = methods.FRAME_END

FRAME_MAX: Final = 131072
CHANNEL_MAX: Final = 2047
MIN_FRAME_MAX: Final = 4096
LARGE_BYTES: Final = 16 * 1024
"""Of one message's frames: so many gain nothing by waiting for others to be written with."""
TLS_ALERT: Final = b"\x15\x03"

CAPABILITIES: Final[dict[str, Any]] = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,  # without it a deleted queue leaves its consumer deaf
    "connection.blocked": True,
    "authentication_failure_close": True,  # a refused login says so instead of dropping the line
}


class Login(msgspec.Struct, frozen=True):
    user: str
    password: str
    vhost: str
    is_external: bool = False  # the client certificate says who we are, not user and password

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, vhost={self.vhost!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """msgspec's own would show every field."""
        return [("user", self.user), ("vhost", self.vhost)]


class Connection:
    """One connection, from the protocol header to its end."""

    def __init__(
        self, login: Login, *, heartbeat_s: int, properties: dict[str, Any], wake: Callable[[bool], None]
    ) -> None:
        """`wake` is told that there is something to send, and whether it is urgent."""
        self.outgoing: list[bytes] = []
        self.frame_max = FRAME_MAX
        self.heartbeat_s = heartbeat_s
        self.is_open = False
        self.is_over = False
        self.server_properties: dict[str, Any] = {}
        self.on_open: Callable[[], None] = ignore
        self.on_blocked: Callable[[str | None], None] = ignore
        self.on_closed: Callable[[AmqpError], None] = ignore
        self._login = login
        self._properties = {**properties, "capabilities": CAPABILITIES}
        self._wake = wake
        self._is_woken = self._is_woken_for_later = False
        self._tail = b""
        self._handshake: deque[tuple[Method, Callable[..., None]]] = deque(
            [
                (methods.CONNECTION_START, self._on_start),
                (methods.CONNECTION_TUNE, self._on_tune),
                (methods.CONNECTION_OPEN_OK, self._on_open_ok),
            ]
        )
        self._channels: dict[int, Channel] = {}
        self._channel_max = CHANNEL_MAX
        self._last_number = 0
        self._closers: list[Waiter] = []

    # --- Sending ------------------------------------------------------------------------------

    def start(self) -> None:
        self.send(methods.PROTOCOL_HEADER)

    def send(self, data: bytes) -> None:
        if self.is_over:
            return
        self.outgoing.append(data)
        if not self._is_woken or len(data) >= LARGE_BYTES:
            self._is_woken = True
            self._wake(True)

    def send_with_the_next(self, data: bytes) -> None:
        """For what nobody waits for: it may stay until something urgent leaves, or for a moment."""
        if self.is_over:
            return
        self.outgoing.append(data)
        if not (self._is_woken or self._is_woken_for_later):
            self._is_woken_for_later = True
            self._wake(False)

    def take_outgoing(self) -> bytes:
        data = b"".join(self.outgoing)
        self.outgoing.clear()
        self._is_woken = self._is_woken_for_later = False
        return data

    def open_channel(self, waiter: Waiter) -> Channel:
        """The waiter hears when it is open, or why it never will be. Raises `LinkLost` when there is none left."""
        channel = Channel(self, self._free_number())
        if self.is_open and not self._closers:
            self._channels[channel.number] = channel
        else:
            channel.end(LinkLost("the connection is not open"))
        channel.request(waiter, methods.CHANNEL_OPEN_OK, methods.CHANNEL_OPEN, "")
        return channel

    def _free_number(self) -> int:
        """Numbers go round, so that a late frame of a closed channel does not reach a new one."""
        for _ in range(self._channel_max):
            self._last_number = self._last_number % self._channel_max + 1
            if self._last_number not in self._channels:
                return self._last_number
        raise LinkLost(f"all {self._channel_max} channels of the connection are in use")

    def close(self, waiter: Waiter) -> None:
        """The waiter hears once it is closed, whoever closed it; it gets no exception. Closing twice is allowed."""
        if self.is_over:
            waiter.set_result(None)
            return
        if not self._closers:
            self.send(methods.encode(0, methods.CONNECTION_CLOSE, 200, "goodbye", 0, 0))
        self._closers.append(waiter)

    def forget(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)

    @property
    def has_met_tls(self) -> bool:
        """What the other side said instead of AMQP is how TLS refuses."""
        return not self.is_open and self._tail.startswith(TLS_ALERT)

    # --- Receiving ----------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Work through every whole frame in what came, and keep the rest. Raises `ProtocolError`."""
        if self.is_over:
            return
        if self._tail:
            data = self._tail + data
        at, size, channels, longest = 0, len(data), self._channels, self.frame_max - 8
        while size - at >= 8:
            kind, number, length = _unpack_frame_head(data, at)
            end = at + 7 + length
            if end >= size or length > longest:
                self._check_head(kind, length, data[at : at + 8])
                break
            if data[end] != _END:
                raise ProtocolError("a frame does not end where it should")
            payload = data[at + 7 : end]
            at = end + 1
            channel = channels.get(number)
            if channel is None:
                self._receive_apart(kind, number, payload)
                if self.is_over:
                    return
                longest = self.frame_max - 8  # which a frame of the handshake changes
            elif kind == _BODY:
                channel.receive_body(payload)
            elif kind == _HEADER:
                channel.receive_header(payload)
            elif kind == _METHOD:
                channel.receive_method(payload)
            else:
                raise ProtocolError(f"unknown frame type {kind}")
        self._tail = data[at:]

    def _check_head(self, kind: int, length: int, head: bytes) -> None:
        """Whether a frame that is not all there is worth waiting for."""
        if kind not in _KINDS:
            raise ProtocolError(f"the other side does not speak AMQP 0-9-1; it says {head!r}")
        if length + 8 > self.frame_max:
            raise ProtocolError(f"a frame of {length + 8} bytes exceeds the agreed {self.frame_max}")

    def _receive_apart(self, kind: int, number: int, payload: bytes) -> None:
        """Frames of the connection itself, and late ones for channels that are already closed."""
        if self.is_over or kind == _HEARTBEAT:
            return
        if kind not in _KINDS or (kind != _METHOD and number == 0):
            raise ProtocolError(f"a frame of type {kind} on channel {number}")
        if number == 0:
            self._receive_own(*methods.decode(payload))

    def _receive_own(self, method: Method, arguments: tuple[Any, ...]) -> None:
        if self._handshake and method is self._handshake[0][0]:
            _, step = self._handshake.popleft()
            step(*arguments)
        elif method is methods.CONNECTION_CLOSE:
            self.send(methods.encode(0, methods.CONNECTION_CLOSE_OK))
            self.end(ClosedByBroker(arguments[0], arguments[1], whole_connection=True))
        elif method is methods.CONNECTION_CLOSE_OK and self._closers:
            self.end(ClosedByUs("the connection was closed"))
        elif method is methods.CONNECTION_BLOCKED:
            self.on_blocked(arguments[0])
        elif method is methods.CONNECTION_UNBLOCKED:
            self.on_blocked(None)
        else:
            raise ProtocolError(f"{method.name} came unasked")

    # --- Shaking hands --------------------------------------------------------------------------

    def _on_start(self, major: int, minor: int, server: dict[str, Any], mechanisms: bytes, _locales: bytes) -> None:
        if (major, minor) != (0, 9):
            raise ProtocolError(f"the broker speaks AMQP {major}-{minor}, not 0-9")
        mechanism = "EXTERNAL" if self._login.is_external else "PLAIN"
        if mechanism.encode() not in mechanisms.split():
            raise SetupMismatch(_no_such_login(mechanism, mechanisms.decode(errors="replace")))
        self.server_properties = server
        secret = "" if self._login.is_external else f"\0{self._login.user}\0{self._login.password}"
        answer = (self._properties, mechanism, secret.encode(), "en_US")
        self.send(methods.encode(0, methods.CONNECTION_START_OK, *answer))

    def _on_tune(self, channel_max: int, frame_max: int, heartbeat_s: int) -> None:
        """Zero means no limit, for each of the three."""
        if 0 < frame_max < MIN_FRAME_MAX:
            raise ProtocolError(f"the broker takes frames of {frame_max} bytes only; AMQP asks for {MIN_FRAME_MAX}")
        self._channel_max = min(channel_max or CHANNEL_MAX, CHANNEL_MAX)
        self.frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        self.heartbeat_s = min(heartbeat_s or self.heartbeat_s, self.heartbeat_s)
        tuned = (self._channel_max, self.frame_max, self.heartbeat_s)
        self.send(methods.encode(0, methods.CONNECTION_TUNE_OK, *tuned))
        self.send(methods.encode(0, methods.CONNECTION_OPEN, self._login.vhost, "", False))

    def _on_open_ok(self, _known_hosts: str) -> None:
        self.is_open = True
        self.on_open()

    # --- Ending -----------------------------------------------------------------------------------

    def end(self, error: AmqpError) -> None:
        """The connection is over: every channel ends with it. Ending twice does nothing."""
        if self.is_over:
            return
        self.is_over, self.is_open = True, False
        for channel in list(self._channels.values()):
            channel.end(error)
        for closer in self._closers:
            tell(closer, None)
        self.on_closed(error)


def _no_such_login(mechanism: str, offered: str) -> str:
    remedy = (
        "switch on its plugin rabbitmq_auth_mechanism_ssl and EXTERNAL in auth_mechanisms, or put user and password "
        "into the URL"
        if mechanism == "EXTERNAL"
        else "for EXTERNAL, set tls_cert and tls_key and leave the user out of the URL"
    )
    return f"the broker offers no {mechanism} login, only {offered:.80}; {remedy}"
