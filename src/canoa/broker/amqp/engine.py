"""The protocol's state machine for one connection: bytes in, callbacks and bytes out. No socket, no clock, no asyncio.

`Connection.receive` takes what the socket brought; what must be sent gathers in `Connection.outgoing`, and `wake` is
called when that stops being empty. Whoever waits for an answer passes a `Waiter`, such as an asyncio future.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from canoa.broker.amqp import content, methods
from canoa.broker.amqp.errors import AmqpError, ClosedByBroker, ClosedByUs, LinkLost, ProtocolError
from canoa.broker.port import Message, Publication, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.amqp.methods import Method

_FRAME_HEAD = struct.Struct(">BHI")
_ACK_ARGUMENTS = struct.Struct(">QB")
_DELIVER_IDS: Final = methods.BASIC_DELIVER.ids.to_bytes(4, "big")
_ACK_IDS: Final = methods.BASIC_ACK.ids.to_bytes(4, "big")

FRAME_MAX: Final = 131072
CHANNEL_MAX: Final = 2047
MIN_FRAME_MAX: Final = 4096

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

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, vhost={self.vhost!r})"


class Waiter(Protocol):
    """Hears the answer to one request. An `asyncio.Future` is one."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


def _ignore(*_: Any) -> None:
    """The default for callbacks nobody set."""


class Channel:
    """One channel. Set the `on_…` callbacks before asking for what triggers them."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.is_open = True
        self.settled_through = 0
        self.on_deliver: Callable[..., None] = _ignore  # tag, redelivered, exchange, key, message
        self.on_return: Callable[..., None] = _ignore  # reason, exchange, key, message
        self.on_confirm: Callable[[int, bool, bool], None] = _ignore
        self.on_cancelled: Callable[[], None] = _ignore
        self.on_closed: Callable[[AmqpError], None] = _ignore
        self._connection = connection
        self._waiting: deque[tuple[Method, Waiter]] = deque()
        self._content_for: Any = None
        self._is_return = False
        self._fields: dict[str, Any] = {}
        self._missing_bytes = 0
        self._chunks: list[bytes] = []

    # --- Sending ------------------------------------------------------------------------------

    def request(self, waiter: Waiter, answer: Method, method: Method, *arguments: Any) -> None:
        """Send a method whose answer goes to the waiter. Answers come in the order of the requests."""
        if not self.is_open or self._connection.is_over:
            waiter.set_exception(LinkLost("the channel is closed"))
            return
        self._waiting.append((answer, waiter))
        self._connection.send(methods.encode(self.number, method, *arguments))

    def publish(self, publication: Publication) -> None:
        self._connection.send(content.publish_frames(self.number, publication, self._connection.frame_max))

    def settle(self, tag: int, how: Settlement, *, multiple: bool = False) -> None:
        if multiple:
            self.settled_through = tag
        self._connection.send(content.settle_frame(self.number, tag, how, multiple=multiple))

    def close(self, waiter: Waiter) -> None:
        self.request(waiter, methods.CHANNEL_CLOSE_OK, methods.CHANNEL_CLOSE, 200, "", 0, 0)

    # --- Receiving ----------------------------------------------------------------------------

    def receive_method(self, payload: bytes) -> None:
        ids = payload[:4]
        if self._content_for is not None:
            raise ProtocolError("a method came in the middle of a message")
        if ids == _DELIVER_IDS:
            self._content_for = content.read_deliver(payload)
            self._is_return = False
        elif ids == _ACK_IDS and len(payload) == 13:
            tag, multiple = _ACK_ARGUMENTS.unpack_from(payload, 4)
            self.on_confirm(tag, multiple == 1, True)
        else:
            self._receive_rare(*methods.decode(payload))

    def receive_header(self, payload: bytes) -> None:
        if self._content_for is None or self._missing_bytes:
            raise ProtocolError("a content header came without its method")
        self._missing_bytes, self._fields = content.read_header(payload)
        if self._missing_bytes == 0:
            self._finish(b"")

    def receive_body(self, chunk: bytes) -> None:
        missing = self._missing_bytes - len(chunk)
        if missing < 0 or self._content_for is None:
            raise ProtocolError("more body came than its header announced")
        self._missing_bytes = missing
        if missing == 0 and not self._chunks:
            self._finish(chunk)
            return
        self._chunks.append(chunk)
        if missing == 0:
            body = b"".join(self._chunks)
            self._chunks = []
            self._finish(body)

    def _finish(self, body: bytes) -> None:
        message = Message(body=body, **self._fields)
        about = self._content_for
        self._content_for = None
        if self._is_return:
            self.on_return(*about, message)
        else:
            self.on_deliver(*about, message)

    def _receive_rare(self, method: Method, arguments: tuple[Any, ...]) -> None:
        if method is methods.BASIC_NACK:
            tag, multiple, _ = arguments
            self.on_confirm(tag, multiple, False)
        elif method is methods.BASIC_RETURN:
            _, text, exchange, key = arguments
            self._content_for, self._is_return = (text, exchange, key), True
        elif method is methods.BASIC_CANCEL:
            self.on_cancelled()
        elif method is methods.CHANNEL_CLOSE:
            self._connection.send(methods.encode(self.number, methods.CHANNEL_CLOSE_OK))
            self.end(ClosedByBroker(arguments[0], arguments[1], whole_connection=False))
        elif method is methods.CHANNEL_FLOW:
            self._connection.send(methods.encode(self.number, methods.CHANNEL_FLOW_OK, arguments[0]))
        else:
            self._answer(method, arguments)

    def _answer(self, method: Method, arguments: tuple[Any, ...]) -> None:
        if not self._waiting or self._waiting[0][0] is not method:
            raise ProtocolError(f"{method.name} came unasked")
        _, waiter = self._waiting.popleft()
        if method is methods.CHANNEL_CLOSE_OK:
            self.end(ClosedByUs("the channel was closed"))
        if not waiter.done():
            waiter.set_result(arguments)

    def end(self, error: AmqpError) -> None:
        """The channel is over; whoever waits hears why. Ending twice does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self._connection.forget(self)
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        self.on_closed(error)


class Connection:
    """One connection, from the protocol header to its end."""

    def __init__(self, login: Login, *, heartbeat_s: int, properties: dict[str, Any], wake: Callable[[], None]) -> None:
        self.outgoing: list[bytes] = []
        self.frame_max = MIN_FRAME_MAX
        self.heartbeat_s = heartbeat_s
        self.is_open = False
        self.is_over = False
        self.server_properties: dict[str, Any] = {}
        self.on_open: Callable[[], None] = _ignore
        self.on_blocked: Callable[[str | None], None] = _ignore
        self.on_closed: Callable[[AmqpError], None] = _ignore
        self._login = login
        self._properties = {**properties, "capabilities": CAPABILITIES}
        self._wake = wake
        self._tail = b""
        self._channels: dict[int, Channel] = {}
        self._channel_max = CHANNEL_MAX
        self._last_number = 0
        self._closing: Waiter | None = None

    # --- Sending ------------------------------------------------------------------------------

    def start(self) -> None:
        self.send(methods.PROTOCOL_HEADER)

    def send(self, data: bytes) -> None:
        if self.is_over:
            return
        if not self.outgoing:
            self._wake()
        self.outgoing.append(data)

    def take_outgoing(self) -> bytes:
        data = b"".join(self.outgoing)
        self.outgoing.clear()
        return data

    def open_channel(self, waiter: Waiter) -> Channel:
        channel = Channel(self, self._free_number())
        self._channels[channel.number] = channel
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
        self._closing = waiter
        self.send(methods.encode(0, methods.CONNECTION_CLOSE, 200, "goodbye", 0, 0))

    def forget(self, channel: Channel) -> None:
        self._channels.pop(channel.number, None)

    # --- Receiving ----------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Work through every whole frame in what came, and keep the rest. Raises `ProtocolError`."""
        if self._tail:
            data = self._tail + data
        if not self.is_open and data[:4] == b"AMQP":
            raise ProtocolError("the server does not speak AMQP 0-9-1")
        at, size, channels = 0, len(data), self._channels
        while size - at >= 8:
            kind, number, length = _FRAME_HEAD.unpack_from(data, at)
            if length > self.frame_max - 8 and self.is_open:
                raise ProtocolError(f"a frame of {length} bytes exceeds the agreed {self.frame_max}")
            end = at + 7 + length
            if end >= size:
                break
            if data[end] != methods.FRAME_END:
                raise ProtocolError("a frame does not end where it should")
            payload = data[at + 7 : end]
            at = end + 1
            if number == 0:
                self._receive_own(kind, payload)
            elif (channel := channels.get(number)) is None:
                continue  # a late frame for a channel we already closed
            elif kind == methods.METHOD_FRAME:
                channel.receive_method(payload)
            elif kind == methods.HEADER_FRAME:
                channel.receive_header(payload)
            elif kind == methods.BODY_FRAME:
                channel.receive_body(payload)
            else:
                raise ProtocolError(f"unknown frame type {kind}")
        self._tail = data[at:]

    def _receive_own(self, kind: int, payload: bytes) -> None:
        if kind == methods.HEARTBEAT_FRAME:
            return
        if kind != methods.METHOD_FRAME:
            raise ProtocolError(f"frame type {kind} on channel 0")
        method, arguments = methods.decode(payload)
        if method is methods.CONNECTION_START:
            self._on_start(*arguments)
        elif method is methods.CONNECTION_TUNE:
            self._on_tune(*arguments)
        elif method is methods.CONNECTION_OPEN_OK:
            self.is_open = True
            self.on_open()
        elif method is methods.CONNECTION_CLOSE:
            self.send(methods.encode(0, methods.CONNECTION_CLOSE_OK))
            self.end(ClosedByBroker(arguments[0], arguments[1], whole_connection=True))
        elif method is methods.CONNECTION_CLOSE_OK:
            self.end(ClosedByUs("the connection was closed"))
        elif method is methods.CONNECTION_BLOCKED:
            self.on_blocked(arguments[0])
        elif method is methods.CONNECTION_UNBLOCKED:
            self.on_blocked(None)
        else:
            raise ProtocolError(f"{method.name} on channel 0")

    def _on_start(self, _major: int, _minor: int, server: dict[str, Any], mechanisms: bytes, _locales: bytes) -> None:
        if b"PLAIN" not in mechanisms.split():
            raise ProtocolError(f"the broker offers no PLAIN login, only {mechanisms.decode(errors='replace')}")
        self.server_properties = server
        secret = f"\0{self._login.user}\0{self._login.password}".encode()
        self.send(methods.encode(0, methods.CONNECTION_START_OK, self._properties, "PLAIN", secret, "en_US"))

    def _on_tune(self, channel_max: int, frame_max: int, heartbeat_s: int) -> None:
        """Zero means no limit, for each of the three."""
        self._channel_max = min(channel_max or CHANNEL_MAX, CHANNEL_MAX)
        self.frame_max = max(MIN_FRAME_MAX, min(frame_max or FRAME_MAX, FRAME_MAX))
        self.heartbeat_s = min(heartbeat_s or self.heartbeat_s, self.heartbeat_s)
        tuned = (self._channel_max, self.frame_max, self.heartbeat_s)
        self.send(methods.encode(0, methods.CONNECTION_TUNE_OK, *tuned))
        self.send(methods.encode(0, methods.CONNECTION_OPEN, self._login.vhost, "", False))

    def end(self, error: AmqpError) -> None:
        """The connection is over: every channel ends with it. Ending twice does nothing."""
        if self.is_over:
            return
        self.is_over, self.is_open = True, False
        for channel in list(self._channels.values()):
            channel.end(error)
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        self.on_closed(error)
