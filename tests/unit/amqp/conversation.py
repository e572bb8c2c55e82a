"""A client's part in one conversation that meets everything we ask of a broker.

`tests/golden/amqp/record.py` holds it with a real RabbitMQ and keeps what both sides said; the tests hold it again with
that record.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from tests.unit.amqp.client import Answer, Client, ask

from canoa.broker.amqp import methods
from canoa.broker.port import Message, Publication, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.amqp.engine import Channel

USUAL = Message(
    body=b'{"path":"a.png"}',
    content_type="application/json",
    headers={"attempt": 1, "ratio": 0.5, "tags": ["a", None, {"deep": b"\xff"}], "ok": True, "minus": -(2**40)},
    message_id="m-1",
    reply_to="answers",
    type="shop.resize",
    priority=3,
    correlation_id="c-1",
    timestamp_s=1_763_237_000,
    app_id="shop",
)
EMPTY = Message(body=b"", persistent=False)


class Wire(Protocol):
    def exchange(self, client: Client, until: Callable[[], bool]) -> None:
        """Send what the client has to say; bring what the broker answers, until that is enough."""


def converse(client: Client, wire: Wire) -> None:
    client.connection.start()
    wire.exchange(client, lambda: client.connection.is_open)
    publishing = _open(client, wire)
    _declare(client, wire, publishing)
    _publish(client, wire, publishing)
    consuming = _open(client, wire)
    _consume(client, wire, consuming)
    _lose_the_queue(client, wire, publishing, consuming)
    _break_the_rules(client, wire, publishing)
    closed: Answer = Future()
    consuming.close(closed)
    wire.exchange(client, closed.done)
    goodbye: Answer = Future()
    client.connection.close(goodbye)
    wire.exchange(client, goodbye.done)


def _open(client: Client, wire: Wire) -> Channel:
    channel, answer = client.ask_for_channel()
    wire.exchange(client, answer.done)
    return channel


def _declare(client: Client, wire: Wire, channel: Channel) -> None:
    exchange: tuple[Any, ...] = (0, "ex", "topic", False, True, False, False, False, {})
    small = {"x-max-length": 1, "x-overflow": "reject-publish"}
    ask(channel, methods.EXCHANGE_DECLARE_OK, methods.EXCHANGE_DECLARE, *exchange)
    ask(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, 0, "q", False, True, False, False, False, {})
    ask(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, 0, "small", False, False, True, False, False, small)
    ask(channel, methods.QUEUE_BIND_OK, methods.QUEUE_BIND, 0, "q", "ex", "a.#", False, {})
    purged = ask(channel, methods.QUEUE_PURGE_OK, methods.QUEUE_PURGE, 0, "q", False)
    confirming = ask(channel, methods.CONFIRM_SELECT_OK, methods.CONFIRM_SELECT, False)
    wire.exchange(client, confirming.done)
    assert purged.result(0) == (0,)


def _publish(client: Client, wire: Wire, channel: Channel) -> None:
    for publication in (
        Publication(message=USUAL, exchange="ex", key="a.b"),
        Publication(message=EMPTY, key="q", mandatory=False),
        Publication(message=Message(body=b"back", message_id="m-2"), key="nowhere"),
        Publication(message=EMPTY, key="small"),
        Publication(message=EMPTY, key="small"),
    ):
        channel.publish(publication)
        tags = _confirmed(client) + 1
        wire.exchange(client, lambda wanted=tags: _confirmed(client) >= wanted)  # type: ignore[misc]


def _confirmed(client: Client) -> int:
    return sum(event[0] == "confirm" for event in client.events)


def _consume(client: Client, wire: Wire, channel: Channel) -> None:
    ask(channel, methods.BASIC_QOS_OK, methods.BASIC_QOS, 0, 10, False)
    ask(channel, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, 0, "q", "q#1", False, False, False, False, {})
    wire.exchange(client, lambda: _delivered(client) == 2)
    channel.settle(1, Settlement.REQUEUE)
    wire.exchange(client, lambda: _delivered(client) == 3)
    channel.settle(3, Settlement.ACK, multiple=True)
    cancelled = ask(channel, methods.BASIC_CANCEL_OK, methods.BASIC_CANCEL, "q#1", False)
    begun = ask(channel, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, 0, "q", "q#2", False, False, False, False, {})
    depth = ask(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, 0, "q", True, *(False,) * 4, {})
    wire.exchange(client, lambda: depth.done() and cancelled.done() and begun.done())
    assert cancelled.result(0) == ("q#1",)
    assert depth.result(0) == ("q", 0, 1)


def _delivered(client: Client) -> int:
    return sum(event[0] == "deliver" for event in client.events)


def _lose_the_queue(client: Client, wire: Wire, channel: Channel, consuming: Channel) -> None:
    deleted = ask(channel, methods.QUEUE_DELETE_OK, methods.QUEUE_DELETE, 0, "q", False, False, False)
    wire.exchange(client, lambda: deleted.done() and ("cancelled", consuming.number) in client.events)


def _break_the_rules(client: Client, wire: Wire, channel: Channel) -> None:
    ask(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, 0, "q", True, *(False,) * 4, {})
    wire.exchange(client, lambda: not channel.is_open)
