"""Byte for byte what two other implementations write. Never change a golden frame: add one (`make_frames.py`)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.amqp.client import opened
from tests.unit.amqp.golden import frames

from canoa.broker.amqp import content, methods
from canoa.broker.amqp.engine import CAPABILITIES
from canoa.broker.amqp.methods import Method, encode
from canoa.broker.port import Message, Publication, Settlement

SENT = frames("sent.hex")
RECEIVED = frames("received.hex")
FRAME_MAX = 4096
NO = False
YES = True

CLIENT: dict[str, Any] = {
    "product": "Canoa",
    "version": "0.1.0",
    "platform": "Python 3.11",
    "connection_name": "canoa (1) publish",
    "capabilities": CAPABILITIES,
}
SERVER: dict[str, Any] = {
    "capabilities": {"publisher_confirms": True, "per_consumer_qos": True, "direct_reply_to": True},
    "cluster_name": "rabbit@localhost",
    "version": "3.10.8",
}
ARGUMENTS: dict[str, Any] = {
    "x-expires": 60_000,
    "x-dead-letter-exchange": "",
    "x-single-active-consumer": True,
    "x-queue-type": "quorum",
}

SENT_METHODS: dict[str, tuple[int, Method, tuple[Any, ...]]] = {
    "connection.start-ok": (0, methods.CONNECTION_START_OK, (CLIENT, "PLAIN", "\0guest\0sécret".encode(), "en_US")),
    "connection.tune-ok": (0, methods.CONNECTION_TUNE_OK, (2047, 131072, 10)),
    "connection.open": (0, methods.CONNECTION_OPEN, ("/plant", "", NO)),
    "connection.close": (0, methods.CONNECTION_CLOSE, (200, "goodbye", 0, 0)),
    "connection.close-ok": (0, methods.CONNECTION_CLOSE_OK, ()),
    "channel.open": (2047, methods.CHANNEL_OPEN, ("",)),
    "channel.flow-ok": (3, methods.CHANNEL_FLOW_OK, (YES,)),
    "channel.close": (3, methods.CHANNEL_CLOSE, (200, "", 0, 0)),
    "channel.close-ok": (3, methods.CHANNEL_CLOSE_OK, ()),
    "exchange.declare": (
        3,
        methods.EXCHANGE_DECLARE,
        (0, "ex", "topic", NO, YES, NO, NO, NO, {"alternate-exchange": "lost"}),
    ),
    "queue.declare": (3, methods.QUEUE_DECLARE, (0, "q", NO, YES, NO, NO, NO, ARGUMENTS)),
    "queue.declare.exclusive": (3, methods.QUEUE_DECLARE, (0, "q", NO, NO, YES, NO, NO, {})),
    "queue.declare.passive": (3, methods.QUEUE_DECLARE, (0, "q", YES, NO, NO, NO, NO, {})),
    "exchange.bind": (3, methods.EXCHANGE_BIND, (0, "ends", "amq.topic", "task.#", NO, {})),
    "queue.bind": (3, methods.QUEUE_BIND, (0, "q", "ex", "a.*.#", NO, {"nodeId": "n-1", "x-match": "all"})),
    "queue.purge": (3, methods.QUEUE_PURGE, (0, "q", NO)),
    "queue.delete": (3, methods.QUEUE_DELETE, (0, "q", NO, NO, NO)),
    "basic.qos": (3, methods.BASIC_QOS, (0, 65535, NO)),
    "basic.consume": (3, methods.BASIC_CONSUME, (0, "q", "q#1", NO, NO, NO, NO, {})),
    "basic.cancel": (3, methods.BASIC_CANCEL, ("q#1", NO)),
    "basic.cancel-ok": (3, methods.BASIC_CANCEL_OK, ("q#1",)),
    "basic.ack": (3, methods.BASIC_ACK, (2**64 - 1, NO)),
    "basic.ack.multiple": (3, methods.BASIC_ACK, (7, YES)),
    "basic.nack.requeue": (3, methods.BASIC_NACK, (7, NO, YES)),
    "basic.nack.reject": (3, methods.BASIC_NACK, (7, YES, NO)),
    "confirm.select": (3, methods.CONFIRM_SELECT, (NO,)),
}
RECEIVED_METHODS: dict[str, tuple[int, Method, tuple[Any, ...]]] = {
    "connection.start": (0, methods.CONNECTION_START, (0, 9, SERVER, b"PLAIN AMQPLAIN", b"en_US")),
    "connection.tune": (0, methods.CONNECTION_TUNE, (2047, 131072, 60)),
    "connection.open-ok": (0, methods.CONNECTION_OPEN_OK, ("",)),
    "connection.close": (0, methods.CONNECTION_CLOSE, (320, "CONNECTION_FORCED - shutdown", 0, 0)),
    "connection.close-ok": (0, methods.CONNECTION_CLOSE_OK, ()),
    "connection.blocked": (0, methods.CONNECTION_BLOCKED, ("low on memory",)),
    "connection.unblocked": (0, methods.CONNECTION_UNBLOCKED, ()),
    "channel.open-ok": (3, methods.CHANNEL_OPEN_OK, (b"",)),
    "channel.flow": (3, methods.CHANNEL_FLOW, (YES,)),
    "channel.close": (3, methods.CHANNEL_CLOSE, (404, "NOT_FOUND - no queue 'q'", 50, 10)),
    "channel.close-ok": (3, methods.CHANNEL_CLOSE_OK, ()),
    "exchange.declare-ok": (3, methods.EXCHANGE_DECLARE_OK, ()),
    "queue.declare-ok": (3, methods.QUEUE_DECLARE_OK, ("q", 2**32 - 1, 2)),
    "exchange.bind-ok": (3, methods.EXCHANGE_BIND_OK, ()),
    "queue.bind-ok": (3, methods.QUEUE_BIND_OK, ()),
    "queue.purge-ok": (3, methods.QUEUE_PURGE_OK, (5,)),
    "queue.delete-ok": (3, methods.QUEUE_DELETE_OK, (6,)),
    "basic.qos-ok": (3, methods.BASIC_QOS_OK, ()),
    "basic.consume-ok": (3, methods.BASIC_CONSUME_OK, ("q#1",)),
    "basic.cancel": (3, methods.BASIC_CANCEL, ("q#1", YES)),
    "basic.cancel-ok": (3, methods.BASIC_CANCEL_OK, ("q#1",)),
    "basic.ack": (3, methods.BASIC_ACK, (2**64 - 1, YES)),
    "basic.nack": (3, methods.BASIC_NACK, (8, NO, YES)),
    "confirm.select-ok": (3, methods.CONFIRM_SELECT_OK, ()),
}
SETTLEMENTS: dict[str, tuple[int, Settlement, bool]] = {
    "basic.ack": (2**64 - 1, Settlement.ACK, NO),
    "basic.ack.multiple": (7, Settlement.ACK, YES),
    "basic.nack.requeue": (7, Settlement.REQUEUE, NO),
    "basic.nack.reject": (7, Settlement.REJECT, YES),
}

USUAL = Message(
    body=b'{"path":"a.png"}',
    content_type="application/json",
    headers={"canoa-attempt": 1, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    reply_to="canoa.reply.1",
    message_id="0192f1f0c0de7000800000000000abcd",
    type="shop.resize",
)
FULL = Message(
    body=b"body",
    content_type="application/json",
    content_encoding="zstd",
    headers={
        "text": "açaí 🛶",
        "yes": True,
        "no": False,
        "negative": -(2**63),
        "large": 2**63 - 1,
        "raw": b"\x00\xff\xce",
        "nothing": None,
        "list": ["a", 1, [b"", {}], None],
        "table": {"": "", "deeper": {"deepest": {}}},
    },
    priority=255,
    correlation_id="c-1",
    reply_to="canoa.reply.1",
    expiration_s=1.5,
    message_id="m-1",
    timestamp_s=2**40,
    type="shop.resize",
    app_id="shop",
)
LARGE = b"x" * (2 * (FRAME_MAX - 8) + 1)
KEY = "canoa.action.shop.resize"

PUBLISHED: dict[str, Publication] = {
    "publish.usual": Publication(message=USUAL, key=KEY),
    "publish.full": Publication(message=FULL, exchange="ex", key="k" * 255, mandatory=False),
    "publish.empty": Publication(message=Message(body=b"", persistent=False), key=KEY),
    "publish.one-frame": Publication(message=Message(body=b"x" * (FRAME_MAX - 8), persistent=False), key=KEY),
    "publish.three-frames": Publication(message=Message(body=LARGE, persistent=False), key=KEY),
}
DELIVERED: dict[str, tuple[Any, ...]] = {
    "deliver.usual": (1, False, "", KEY, USUAL),
    "deliver.full": (2**64 - 1, True, "ex", "k" * 255, FULL),
    "deliver.bare": (1, False, "", KEY, Message(body=b"", persistent=False)),
    "deliver.three-frames": (1, False, "", KEY, Message(body=LARGE, persistent=False)),
}


@pytest.mark.parametrize("name", SENT_METHODS)
def test_methods_are_written_as_others_write_them(name: str) -> None:
    number, method, arguments = SENT_METHODS[name]

    assert encode(number, method, *arguments) == SENT[name]


@pytest.mark.parametrize("name", RECEIVED_METHODS)
def test_methods_of_others_are_read_as_they_were_meant(name: str) -> None:
    number, method, arguments = RECEIVED_METHODS[name]
    frame = RECEIVED[name]

    assert methods.decode(frame[7:-1]) == (method, arguments)
    assert encode(number, method, *arguments) == frame


@pytest.mark.parametrize("name", PUBLISHED)
def test_publications_are_written_as_others_write_them(name: str) -> None:
    assert content.publish_frames(3, PUBLISHED[name], FRAME_MAX) == SENT[name]


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_settlements_are_written_as_others_write_them(name: str) -> None:
    tag, how, multiple = SETTLEMENTS[name]

    assert content.settle_frame(3, tag, how, multiple=multiple) == SENT[name]


@pytest.mark.parametrize("name", DELIVERED)
def test_deliveries_of_others_are_read_as_they_were_meant(name: str) -> None:
    client = opened(frame_max=FRAME_MAX)
    while client.open_channel().number < 3:
        pass

    client.connection.receive(RECEIVED[name])

    assert client.events == [("deliver", 3, *DELIVERED[name])]


def test_a_returned_message_is_read_as_it_was_meant() -> None:
    client = opened()
    while client.open_channel().number < 3:
        pass

    client.connection.receive(RECEIVED["return"])

    message = Message(body=b"body", message_id="m-1", persistent=False)
    assert client.events == [("return", 3, "NO_ROUTE", "", "gone", message)]


def test_header_and_heartbeat_are_those_of_others() -> None:
    assert SENT["protocol-header"] == methods.PROTOCOL_HEADER
    assert SENT["heartbeat"] == methods.HEARTBEAT


def test_no_golden_frame_is_left_out() -> None:
    assert set(SENT) == {"protocol-header", "heartbeat", *SENT_METHODS, *PUBLISHED}
    assert set(RECEIVED) == {"return", *RECEIVED_METHODS, *DELIVERED}


def test_every_method_has_a_golden_frame() -> None:
    written = {method for _, method, _ in [*SENT_METHODS.values(), *RECEIVED_METHODS.values()]}
    with_content = {methods.BASIC_PUBLISH, methods.BASIC_DELIVER, methods.BASIC_RETURN}

    assert written | with_content == set(methods.UNDERSTOOD.values())
