"""What Canoa needs from a message broker: AMQP 0-9-1's model, and nothing of any driver.

The words (exchange, queue, binding, message, delivery) and the promises live here. `memory.py` is the promise as
running code, `rabbitmq.py` keeps it over the network; `tests/contract/broker/` holds both to it.
Names of real exchanges and queues are in `topology.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from canoa.errors import CanoaError

HeaderValue: TypeAlias = "str | int | float | bool | bytes | list[HeaderValue] | dict[str, HeaderValue] | None"
"""What a header may hold. Integers fit in 64 bits."""


class ExchangeKind(enum.StrEnum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A durable exchange. What it cannot route goes to `alternate`, if that is set."""

    name: str
    kind: ExchangeKind
    alternate: str | None = None


class Overflow(enum.StrEnum):
    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is durable, or `exclusive` to this broker object and gone with its connection.

    Arguments are fixed once a queue exists: declaring it again with others raises `DeclarationDiffers`, or, where one
    of both is exclusive, `BrokerRefusedOperation`.
    """

    name: str
    exclusive: bool = False
    quorum: bool = False
    expires_s: float | None = None  # removed after this long without a consumer or a declaration
    message_ttl_s: float | None = None  # 0: for who can take it at once, and nobody else
    max_length: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD  # only with max_length
    dead_letter_exchange: str | None = None  # "" is the default exchange
    dead_letter_key: str | None = None  # None keeps the message's own routing key
    max_priority: int | None = None  # 1..255; classic queues only
    single_active_consumer: bool = False


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Exchange to queue. `headers` are matched by a headers exchange; `match_any` asks for one of them, not all."""

    exchange: str
    queue: str
    key: str = ""
    headers: Mapping[str, HeaderValue] = {}
    match_any: bool = False


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """Exchange to exchange: what comes to the one under a key that matches goes on to the other, under the same key. As
    with a `Binding`, each queue gets a message once, by whichever ways it is reached."""

    exchange: str
    to: str
    key: str = ""


Declaration: TypeAlias = Exchange | Queue | Binding | Relay


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A body and what is known about it. `persistent` messages in durable queues survive a broker restart."""

    body: bytes
    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, HeaderValue] = {}
    persistent: bool = True
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration_s: float | None = None  # per-message TTL; only seen when the message reaches the queue's head
    message_id: str | None = None
    timestamp_s: int | None = None
    type: str | None = None
    app_id: str | None = None


class Publication(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A message and where it goes. `mandatory`: no queue there is an error (`Unroutable`), not silence.

    A mandatory message needs a `message_id`: that is how the broker's answer finds it.
    """

    message: Message
    key: str
    exchange: str = ""  # the default exchange: the key is the queue's name
    mandatory: bool = True


PublishOutcome: TypeAlias = CanoaError | None
"""None: the broker has the message. Otherwise `Unroutable`, `BrokerRefusedMessage`, `BrokerUnreachable` (never sent)
or `DeliveryUnknown` (sent, no answer)."""


class Depth(msgspec.Struct, frozen=True):
    """What a queue holds ready (unsettled deliveries do not count), and how many consumers it has."""

    messages: int
    consumers: int


class Settlement(enum.Enum):
    ACK = "ack"
    REQUEUE = "requeue"  # back to the queue, about where it was, marked as redelivered
    REJECT = "reject"  # to the queue's dead-letter exchange, or dropped where there is none


ACK: Final = Settlement.ACK
"""As almost always: Python 3.11 takes ten times as long to find a member in its class."""


class Delivery(Protocol):
    """One message in our hands. Unsettled ones go back to the queue when the consumer's link ends.

    Settling never waits. Settling twice, or after the link is gone, does nothing and returns False: by then the broker
    has already given the message to someone else.
    """

    __slots__ = ()

    @property
    def message(self) -> Message: ...
    @property
    def exchange(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def is_settled(self) -> bool:
        """No longer ours: settled, or gone with the link."""

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        """Tell the broker, at the end of this turn of the event loop."""


OnDelivery: TypeAlias = Callable[[Delivery], None]


class Consumer(Protocol):
    """A subscription that consumes again by itself after a cut, a restart or a cancel by the broker, or ends loudly."""

    @property
    def queue(self) -> str: ...

    @property
    def is_listening(self) -> bool:
        """The broker sends what comes. Not during a cut, and not after the end."""

    def settle_through(self, delivery: Delivery, how: Settlement = Settlement.ACK) -> bool:
        """Settle it and every unsettled delivery this consumer got before it: one word to the broker for many."""

    async def set_prefetch(self, prefetch: int) -> None:
        """Change how many unsettled deliveries it may hold. Deliveries in hand stay valid."""

    async def cancel(self) -> None:
        """Take nothing new. Deliveries already in hand can still be settled, until the broker object closes."""

    async def wait_ended(self) -> None:
        """Return once cancelled; raise what made consuming impossible (the queue is gone and was not in `topology`,
        permission denied, a declaration that differs, login refused for longer than the broker's patience)."""


class Broker(Protocol):
    """One program's access to one broker. Safe for one event loop.

    Order holds per queue for messages published from one broker object and not requeued.
    """

    async def open(self) -> None:
        """Reach the broker and log in, or raise `BrokerUnreachable` or `BrokerRefusedLogin`. Afterwards it reconnects
        by itself, with exponential backoff and jitter."""

    async def aclose(self) -> None:
        """Flush settlements, then leave. Unsettled deliveries go back. Closing twice is allowed."""

    @property
    def is_linked(self) -> bool:
        """What is posted now leaves now: there is a link, and the broker takes messages."""

    @property
    def is_blocked(self) -> bool:
        """The broker takes no messages right now (alarm). Consuming and settling go on."""

    async def declare(self, *declarations: Declaration) -> None:
        """Make them exist, in order. Idempotent; raises `DeclarationDiffers` when one exists with other traits,
        which is no sign of life for a queue that expires."""

    async def depth(self, queue: str) -> Depth:
        """Look without declaring (a passive declare), or raise `QueueMissing`."""

    async def delete_queue(self, queue: str) -> None:
        """Remove it with all it holds. Removing what is not there is not an error."""

    async def purge(self, queue: str) -> int:
        """Drop what is ready in it; say how many."""

    def post(
        self, publication: Publication, on_outcome: Callable[[PublishOutcome], None], *, later: bool = False
    ) -> None:
        """Send now, hear later: `on_outcome` is called exactly once, from the event loop, never from inside `post`.

        Does not wait for the window below: for callers that are bounded by other means, such as prefetch.
        `later`: nothing waits for the outcome, so it may be told a moment after it is known, together with others.
        """

    async def publish(self, publication: Publication) -> None:
        """Return once the broker has the message, or raise its `PublishOutcome`.

        Waits while `window` messages are unconfirmed, while the link is down or the broker blocks; after
        `publish_timeout_s` without having been sent it raises `BrokerUnreachable` or `BrokerBlocked`.
        Cancelling it does not unsend the message.
        """

    async def publish_many(self, publications: Sequence[Publication]) -> list[PublishOutcome]:
        """Like `publish` for each, pipelined, in order; one outcome each, in the same order."""

    async def consume(
        self,
        queue: str,
        on_delivery: OnDelivery,
        *,
        prefetch: int,
        topology: Sequence[Declaration] = (),
        on_recovered: Callable[[float], None] | None = None,
    ) -> Consumer:
        """Start to consume, and return once the broker agreed. `topology` is declared before, and again before every
        recovery, so that an exclusive or deleted queue comes back. `on_recovered` is called whenever it consumes again
        after a loss, with the seconds since then.

        `on_delivery` is called from the event loop and must not raise; with `prefetch` unsettled ones in hand the
        broker sends no more.
        """
