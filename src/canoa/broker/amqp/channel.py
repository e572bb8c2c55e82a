"""One channel's side of the protocol: requests and their answers, messages in the making, and how it all ends.

The connection (`engine.py`) hands it the frames with its number.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from canoa.broker.amqp import content, methods
from canoa.broker.amqp.errors import AmqpError, ClosedByBroker, ClosedByUs, LinkLost, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.amqp.engine import Connection
    from canoa.broker.amqp.methods import Method
    from canoa.broker.port import Message, Publication, Settlement

_unpack_ack = struct.Struct(">QB").unpack_from
_DELIVER_IDS: Final = methods.BASIC_DELIVER.ids.to_bytes(4, "big")
_ACK_IDS: Final = methods.BASIC_ACK.ids.to_bytes(4, "big")

URGENT_SHARE: Final = 4
"""While more than three quarters of the prefetch are still out, no settlement is urgent: the broker goes on delivering.
Together they cost both sides a fraction of what each costs alone."""


class Waiter(Protocol):
    """Hears the answer to one request. An `asyncio.Future` is one."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


def ignore(*_: Any) -> None:
    """The default for callbacks nobody set."""


def tell(waiter: Waiter, result: Any) -> None:
    if not waiter.done():  # whoever waited may have given up
        waiter.set_result(result)


class Channel:
    """One channel. Set the `on_…` callbacks before asking for what triggers them.

    `is_open` ends with the first word of closing, ours or the broker's. From then on nothing is sent: a single frame
    more would make the broker close the whole connection.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.is_open = True
        self.settled_through = 0
        self.prefetch = 1
        self.on_deliver: Callable[[int, bool, str, str, Message], None] = ignore  # tag, redelivered, exchange, key
        self.on_return: Callable[[str, str, str, Message], None] = ignore  # reason, exchange, key
        self.on_confirm: Callable[[int, bool, bool], None] = ignore  # tag, multiple, taken
        self.on_cancelled: Callable[[], None] = ignore
        self.on_closed: Callable[[AmqpError], None] = ignore
        self._connection = connection
        self._is_over = False
        self._settled = 0
        self._waiting: deque[tuple[Method, Waiter]] = deque()
        self._closers: list[Waiter] = []
        # The message that is coming in: what its method said, its header once that is there, its body so far.
        self._about: tuple[Any, ...] | None = None
        self._is_return = False
        self._header: bytes | None = None
        self._flags = 0
        self._missing_bytes = 0
        self._chunks: list[bytes] = []

    # --- Sending ------------------------------------------------------------------------------

    def request(self, waiter: Waiter, answer: Method, method: Method, *arguments: Any) -> None:
        """Send a method whose answer goes to the waiter. Answers of one kind come in the order of their requests."""
        if not self.is_open:
            waiter.set_exception(LinkLost("the channel is closed"))
            return
        frame = methods.encode(self.number, method, *arguments)
        if len(frame) > self._connection.frame_max:
            raise ValueError(
                f"{method.name} takes {len(frame):,} bytes, over the broker's {self._connection.frame_max:,}"
            )
        self._waiting.append((answer, waiter))
        self._connection.send(frame)

    def publish(self, publication: Publication) -> None:
        """Nothing is sent when the channel is no longer open; `on_closed` tells so, or soon will."""
        if self.is_open:
            self._connection.send(content.publish_frames(self.number, publication, self._connection.frame_max))

    def settle(self, tag: int, how: Settlement, *, multiple: bool = False) -> None:
        """Nothing is sent when the channel is no longer open: the broker has taken back what it had delivered."""
        if not self.is_open:
            return
        if multiple:
            self.settled_through = tag
        frame = content.settle_frame(self.number, tag, how, multiple=multiple)
        self._settled += 1
        if self._settled * URGENT_SHARE >= self.prefetch:
            self._settled = 0
            self._connection.send(frame)
        else:
            self._connection.send_with_the_next(frame)

    def close(self, waiter: Waiter) -> None:
        """The waiter hears once it is closed, whoever closed it; it gets no exception. Closing twice is allowed."""
        if self._is_over:
            waiter.set_result(None)
            return
        self._closers.append(waiter)
        if self.is_open:
            self.is_open = False
            self._connection.send(methods.encode(self.number, methods.CHANNEL_CLOSE, 200, "", 0, 0))

    # --- Receiving ----------------------------------------------------------------------------

    def receive_method(self, payload: bytes) -> None:
        if self._about is not None:
            raise ProtocolError("a method came in the middle of a message")
        ids = payload[:4]
        if ids == _DELIVER_IDS:
            self._about = content.read_deliver(payload)
            self._is_return = False
        elif ids == _ACK_IDS and len(payload) == 13:
            tag, bits = _unpack_ack(payload, 4)
            self.on_confirm(tag, bits & 1 == 1, True)
        else:
            self._receive_rare(*methods.decode(payload))

    def receive_header(self, payload: bytes) -> None:
        if self._about is None or self._header is not None:
            raise ProtocolError("a content header came without its method")
        self._missing_bytes, self._flags = content.read_header(payload)
        self._header = payload
        if self._missing_bytes == 0:
            self._finish(b"")

    def receive_body(self, chunk: bytes) -> None:
        missing = self._missing_bytes - len(chunk)
        if missing == 0 and not self._chunks:
            self._finish(chunk)
        else:
            self._gather(chunk, missing)

    def _gather(self, chunk: bytes, missing: int) -> None:
        """A body in several frames."""
        if missing < 0 or not chunk:
            raise ProtocolError("a body frame does not fit the size that its header announced")
        self._missing_bytes = missing
        self._chunks.append(chunk)
        if missing == 0:
            body, self._chunks = b"".join(self._chunks), []
            self._finish(body)

    def _finish(self, body: bytes) -> None:
        about, header = self._about, self._header
        if about is None or header is None:
            raise ProtocolError("a body came without its header")
        self._about = self._header = None
        self._missing_bytes = 0
        message = content.read_message(header, self._flags, body)
        if self._is_return:
            text, exchange, key = about
            self.on_return(text, exchange, key, message)
        elif self.is_open:  # what comes after our close goes back to its queue
            tag, redelivered, exchange, key = about
            self.on_deliver(tag, redelivered, exchange, key, message)

    def _receive_rare(self, method: Method, arguments: tuple[Any, ...]) -> None:
        if method is methods.BASIC_NACK:
            tag, multiple, _ = arguments
            self.on_confirm(tag, multiple, False)
        elif method is methods.BASIC_RETURN:
            self._about, self._is_return = arguments[1:], True
        elif method is methods.BASIC_CANCEL:
            self._on_cancel(*arguments)
        elif method is methods.CHANNEL_CLOSE:
            self._connection.send(methods.encode(self.number, methods.CHANNEL_CLOSE_OK))
            self.end(ClosedByBroker(arguments[0], arguments[1], whole_connection=False))
        elif method is methods.CHANNEL_CLOSE_OK and self._closers:
            self.end(ClosedByUs("the channel was closed"))
        elif method is methods.CHANNEL_FLOW:
            self._reply(methods.CHANNEL_FLOW_OK, arguments[0])
        else:
            self._answer(method, arguments)

    def _on_cancel(self, consumer: str, no_wait: bool) -> None:
        if not no_wait:
            self._reply(methods.BASIC_CANCEL_OK, consumer)
        self.on_cancelled()

    def _reply(self, method: Method, argument: Any) -> None:
        if self.is_open:
            self._connection.send(methods.encode(self.number, method, argument))

    def _answer(self, method: Method, arguments: tuple[Any, ...]) -> None:
        """To whoever has waited longest for this method. Not simply to the first in line: in RabbitMQ the queue itself
        confirms that consuming began or ended, and the channel's answers to later requests may come before."""
        for place, (wanted, waiter) in enumerate(self._waiting):
            if wanted is method:
                del self._waiting[place]
                tell(waiter, arguments)
                return
        raise ProtocolError(f"{method.name} came unasked")

    def end(self, error: AmqpError) -> None:
        """The channel is over; whoever waits hears why. Ending twice does nothing."""
        if self._is_over:
            return
        self._is_over, self.is_open = True, False
        self._connection.forget(self)
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        for closer in self._closers:
            tell(closer, None)
        self.on_closed(error)
