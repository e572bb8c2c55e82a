"""A broken or hostile broker costs us the connection to it, and nothing else: no other error, no hang, no memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.amqp import attack
from tests.unit.amqp.client import Client, opened
from tests.unit.amqp.golden import frames

from canoa.broker.amqp import content, methods, values
from canoa.broker.amqp.errors import ProtocolError
from canoa.broker.amqp.methods import encode, frame

if TYPE_CHECKING:
    from collections.abc import Callable

RECEIVED = frames("received.hex")
HUGE = 2**32 - 1
DELIVER = encode(1, methods.BASIC_DELIVER, "t", 1, False, "", "q")


def header(*, size: int = 1, flags: int = 0, properties: bytes = b"", class_id: int = 60) -> bytes:
    return frame(methods.HEADER_FRAME, 1, struct.pack(">HHQH", class_id, 0, size, flags) + properties)


def body(data: bytes) -> bytes:
    return frame(methods.BODY_FRAME, 1, data)


def with_table(table: bytes) -> bytes:
    return DELIVER + header(flags=0x2000, properties=table) + body(b"x")


HOSTILE: dict[str, bytes] = {
    "a frame of 4 GiB": struct.pack(">BHI", 1, 1, HUGE) + b"\x00",
    "a frame one byte over the limit": struct.pack(">BHI", 3, 1, 131072 - 7) + b"\x00",
    "a frame one byte over the limit, complete": frame(methods.METHOD_FRAME, 1, b"x" * (131072 - 7)),
    "a late frame one byte over the limit": frame(methods.BODY_FRAME, 7, b"x" * (131072 - 7)),
    "a frame of a type that does not exist": frame(4, 1, b""),
    "a late frame of a type that does not exist": frame(4, 7, b""),
    "a heartbeat on a channel": frame(methods.HEARTBEAT_FRAME, 1, b""),
    "a frame without its end": DELIVER[:-1] + b"\x00" + DELIVER,
    "an empty method": frame(methods.METHOD_FRAME, 1, b""),
    "an unknown method": frame(methods.METHOD_FRAME, 1, b"\x00\x3c\x00\x46"),
    "a method with a tail": frame(methods.METHOD_FRAME, 1, b"\x00\x32\x00\x15\x00"),
    "a method without its bits": frame(methods.METHOD_FRAME, 1, b"\x00\x14\x00\x14"),
    "a method without its number": frame(methods.METHOD_FRAME, 1, b"\x00\x32\x00\x1f\x00\x00\x00"),
    "an acknowledgement cut short": frame(methods.METHOD_FRAME, 1, b"\x00\x3c\x00\x50\x00"),
    "an answer to nothing": encode(1, methods.QUEUE_BIND_OK),
    "a close-ok to nothing": encode(1, methods.CHANNEL_CLOSE_OK),
    "a connection close-ok to nothing": encode(0, methods.CONNECTION_CLOSE_OK),
    "a second handshake": RECEIVED["connection.tune"],
    "a second open-ok": RECEIVED["connection.open-ok"],
    "a request that only clients make": encode(1, methods.QUEUE_PURGE, 0, "q", False),
    "a channel method on channel 0": encode(0, methods.CHANNEL_FLOW, True),
    "a connection method on a channel": encode(1, methods.CONNECTION_UNBLOCKED),
    "content on channel 0": frame(methods.HEADER_FRAME, 0, b""),
    "a header without a method": header(),
    "a body without a method": body(b"x"),
    "an empty body without a method": body(b""),
    "a body without a header": DELIVER + body(b"x"),
    "an empty body without a header": DELIVER + body(b""),
    "an empty body after one that is not": DELIVER + header() + body(b"x") + DELIVER + body(b""),
    "an empty body frame": DELIVER + header() + body(b""),
    "two headers": DELIVER + header() + header(),
    "a method inside a message": DELIVER + DELIVER,
    "a method inside a body": DELIVER + header(size=2) + body(b"x") + DELIVER,
    "more body than announced": DELIVER + header() + body(b"xx"),
    "more body than announced, later": DELIVER + header(size=3) + body(b"xx") + body(b"xx"),
    "a body of 2^63 bytes": DELIVER + header(size=2**63),
    "a body one byte over the limit": DELIVER + header(size=content.MAX_BODY_BYTES + 1),
    "a header cut short": DELIVER + frame(methods.HEADER_FRAME, 1, b"\x00\x3c"),
    "a header of another class": DELIVER + header(class_id=10),
    "more property flags to come": DELIVER + header(flags=0x0001),
    "properties that are missing": DELIVER + header(flags=0x1000) + body(b"x"),
    "a timestamp cut short": DELIVER + header(flags=0x0040, properties=b"\x00") + body(b"x"),
    "properties with a tail": DELIVER + header(properties=b"x") + body(b"x"),
    "a short string beyond the end": DELIVER + header(flags=0x8000, properties=b"\xffx") + body(b"x"),
    "a table beyond the frame": with_table(struct.pack(">I", HUGE)),
    "a table one byte beyond the frame": with_table(struct.pack(">I", 4) + b"\x01kV"),
    "a table without its length": with_table(b"\x00\x00"),
    "a key beyond its table": with_table(values.long_string(b"\x05k")),
    "a key without a value": with_table(values.long_string(b"\x01k")),
    "a text beyond its table": with_table(values.long_string(b"\x01kS\x00\x00\x00\x05x")),
    "a text without its length": with_table(values.long_string(b"\x01kS\x00")),
    "a number beyond its table": with_table(values.long_string(b"\x01kl\x00")),
    "a decimal beyond its table": with_table(values.long_string(b"\x01kD\x00")),
    "an inner table beyond the outer": with_table(values.long_string(b"\x01kF\x00\x00\x00\x01")),
    "an array beyond its table": with_table(values.long_string(b"\x01kA" + struct.pack(">I", HUGE))),
    "an unknown kind of field": with_table(values.long_string(b"\x01k?")),
    "an unknown kind deep inside": with_table(values.long_string(b"\x01kA\x00\x00\x00\x01\x00")),
    "a deliver cut short": frame(methods.METHOD_FRAME, 1, b"\x00\x3c\x00\x3c\x01t\x00"),
    "a deliver of nothing": frame(methods.METHOD_FRAME, 1, b"\x00\x3c\x00\x3c"),
    "a deliver with a tail": frame(methods.METHOD_FRAME, 1, DELIVER[7:-1] + b"x"),
    "a deliver whose key is cut short": frame(methods.METHOD_FRAME, 1, DELIVER[7:-2]),
}
EARLY: dict[str, bytes] = {
    "a frame of 4 GiB": struct.pack(">BHI", 1, 0, HUGE) + b"\x00",
    "another version of AMQP": b"AMQP\x03\x01\x00\x00",
    "a web server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an SSH server": b"SSH-2.0-OpenSSH_9.2\r\n",
    "tune before start": RECEIVED["connection.tune"],
    "open before start": RECEIVED["connection.open-ok"],
    "start twice": RECEIVED["connection.start"] * 2,
    "frames too small to be AMQP": RECEIVED["connection.start"] + encode(0, methods.CONNECTION_TUNE, 0, 4095, 0),
    "an older protocol": encode(0, methods.CONNECTION_START, 0, 8, {}, b"PLAIN", b"en_US"),
    "no login that we know": encode(0, methods.CONNECTION_START, 0, 9, {}, b"EXTERNAL \xff", b"en_US"),
}


def with_channel() -> Client:
    client = opened()
    client.open_channel()
    return client


def before_the_handshake() -> Client:
    client = Client()
    client.connection.start()
    return client


@pytest.mark.parametrize(
    ("victim", "data"),
    [pytest.param(with_channel, data, id=name) for name, data in HOSTILE.items()]
    + [pytest.param(before_the_handshake, data, id=f"early: {name}") for name, data in EARLY.items()],
)
def test_what_is_not_amqp_is_refused_at_once(victim: Callable[[], Client], data: bytes) -> None:
    for size in (len(data), 1):
        client = victim()

        with pytest.raises(ProtocolError):
            hear(client, data, size=size)


def hear(client: Client, data: bytes, *, size: int) -> None:
    for at in range(0, len(data), size):
        client.connection.receive(data[at : at + size])


def test_nothing_is_set_aside_for_what_was_only_announced() -> None:
    client = with_channel()

    tracemalloc.start()
    try:
        client.connection.receive(DELIVER + header(size=content.MAX_BODY_BYTES))
        for announced in (struct.pack(">BHI", 1, 0, HUGE), struct.pack(">BHI", 3, 1, HUGE)):
            with pytest.raises(ProtocolError):
                with_channel().connection.receive(announced + bytes(100))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 1_000_000


def test_text_of_a_foreign_server_is_shown_to_whoever_must_find_out() -> None:
    with pytest.raises(ProtocolError, match="HTTP/1"):
        before_the_handshake().connection.receive(EARLY["a web server"])


@pytest.mark.parametrize("name", RECEIVED)
def test_any_frame_cut_short_inside_is_refused(name: str) -> None:
    """The frame is whole, what it holds is not: every length must be checked."""
    first_size = struct.unpack_from(">I", RECEIVED[name], 3)[0]
    payload = RECEIVED[name][7 : 7 + first_size]
    for size in range(first_size):
        with pytest.raises(ProtocolError):
            methods.decode(payload[:size])


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_table_is_read_or_refused(raw: bytes, at: int) -> None:
    outcome: Any
    try:
        outcome, end = values.read_table(raw, at)
    except ProtocolError:
        return
    assert isinstance(outcome, dict)
    assert at + 4 <= end <= len(raw)


@given(st.integers(0, 2**14 - 1).map(lambda flags: flags << 2), st.binary(max_size=300))
def test_any_properties_are_read_or_refused(flags: int, properties: bytes) -> None:
    client = with_channel()

    try:
        client.connection.receive(DELIVER + header(flags=flags, properties=properties) + body(b"x"))
    except ProtocolError:
        assert client.events == []
    else:
        assert len(client.events) == 1


@given(st.integers(0, 2**64))
def test_any_attack_ends_in_going_on_or_in_a_protocol_error(seed: int) -> None:
    for step in range(10):
        attack(random.Random(seed + step))
