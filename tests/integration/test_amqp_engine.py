"""What the engine's unit tests take for granted about a broker, asked of a real one."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.golden.amqp.record import RecordedSocket
from tests.unit.amqp.client import Client
from tests.unit.amqp.conversation import converse
from tests.unit.amqp.test_transcript import EVENTS, events_of

from canoa.broker.amqp import methods
from canoa.broker.amqp.content import MAX_EXPIRATION_S
from canoa.broker.amqp.errors import ClosedByBroker
from canoa.broker.amqp.link import Link
from canoa.broker.amqp.methods import encode, frame
from canoa.broker.port import Message, Publication
from canoa.broker.rabbitmq import parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.broker.amqp.engine import Channel

WITHIN_S = 10.0


@asynccontextmanager
async def linked(url: str) -> AsyncIterator[tuple[Link, Channel]]:
    address, login = parse_url(url)
    link = await Link.connect(address, login, heartbeat_s=10, name="tests", within_s=WITHIN_S)
    try:
        yield link, await link.channel()
    finally:
        await link.aclose()


def deep_table(depth: int) -> bytes:
    table = struct.pack(">I", 0)
    for _ in range(depth):
        table = struct.pack(">I", len(table) + 3) + b"\x01kF" + table
    return table


@pytest.mark.parametrize(
    ("flags", "properties"),
    [
        pytest.param(0x0080, b"\x03a\xff\xfe", id="an id that is not UTF-8"),
        pytest.param(0x2000, b"\x00\x00\x00\x04\x02\xff\xfeV", id="a header's name that is not UTF-8"),
        pytest.param(0x2000, deep_table(33), id="a header one level too deep"),
        pytest.param(0x2000, deep_table(5000), id="a header far too deep"),
    ],
)
async def test_a_strange_message_that_the_broker_passes_on_is_delivered_once(
    rabbit_url: str, flags: int, properties: bytes
) -> None:
    """Refusing it would cost the connection, and the broker would deliver it again on the next one: for ever."""
    async with linked(rabbit_url) as (link, channel):
        delivered: asyncio.Queue[Message] = asyncio.Queue()
        channel.on_deliver = lambda *arguments: delivered.put_nowait(arguments[-1])
        queue: tuple[Any, ...] = (0, "q", False, False, True, False, False, {})
        await link.request(channel, methods.QUEUE_DECLARE_OK, methods.QUEUE_DECLARE, *queue)
        await link.request(channel, methods.BASIC_CONSUME_OK, methods.BASIC_CONSUME, 0, "q", "t", *(False,) * 4, {})

        header = struct.pack(">HHQH", 60, 0, 1, flags) + properties
        link.engine.send(
            encode(channel.number, methods.BASIC_PUBLISH, 0, "", "q", False, False)
            + frame(methods.HEADER_FRAME, channel.number, header)
            + frame(methods.BODY_FRAME, channel.number, b"x")
        )

        async with asyncio.timeout(WITHIN_S):
            message = await delivered.get()
        assert message.body == b"x"
        assert not link.engine.is_over


async def test_one_frame_on_a_closed_channel_costs_the_whole_connection(rabbit_url: str) -> None:
    """Why a channel that is no longer open sends nothing."""
    async with linked(rabbit_url) as (link, channel):
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        channel.close(closed)
        await closed

        link.engine.send(encode(channel.number, methods.BASIC_ACK, 1, False))

        async with asyncio.timeout(WITHIN_S):
            error = await link.closed
        assert isinstance(error, ClosedByBroker)
        assert (error.code, error.whole_connection) == (504, True)


def test_the_recorded_conversation_can_be_held_today(rabbit_url: str) -> None:
    address, login = parse_url(rabbit_url)
    client, broker = Client(vhost=login.vhost), RecordedSocket(address.host, address.port, lambda *_: None)
    try:
        converse(client, broker)
    finally:
        broker.close()

    assert without_words(events_of(client)) == without_words(EVENTS)


def without_words(events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The text of an error names the virtual host."""
    return [event[:3] if event[0] == "closed" else event for event in events]


async def test_the_longest_expiration_we_send_is_taken(rabbit_url: str) -> None:
    async with linked(rabbit_url) as (link, channel):
        confirmed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        channel.on_confirm = lambda _tag, _multiple, is_taken: confirmed.set_result(is_taken)
        await link.request(channel, methods.CONFIRM_SELECT_OK, methods.CONFIRM_SELECT, False)

        message = Message(body=b"x", expiration_s=MAX_EXPIRATION_S)
        channel.publish(Publication(message=message, key="nowhere", mandatory=False))

        async with asyncio.timeout(WITHIN_S):
            assert await confirmed
