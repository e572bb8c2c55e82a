"""What is written is read back, exactly; what others write is read too; what cannot travel is refused by name."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.amqp.client import opened
from tests.unit.amqp.strategies import messages, methods_with_arguments, tables

from canoa.broker.amqp import content, methods, values
from canoa.broker.port import HeaderValue, Message, Publication

if TYPE_CHECKING:
    from canoa.broker.amqp.methods import Method

FRAME_MAX = 131072


@given(tables, st.binary(max_size=5), st.binary(max_size=5))
def test_tables_read_back_as_they_were_written(table: dict[str, HeaderValue], before: bytes, after: bytes) -> None:
    encoded = values.table(table)

    decoded, end = values.read_table(before + encoded + after, len(before))

    assert repr(decoded) == repr(table)  # repr, since True == 1 == 1.0
    assert end == len(before) + len(encoded)


@given(methods_with_arguments(), st.integers(0, 65535))
def test_methods_read_back_as_they_were_written(case: tuple[Method, tuple[Any, ...]], number: int) -> None:
    method, arguments = case

    frame = methods.encode(number, method, *arguments)

    assert frame[:3] == struct.pack(">BH", methods.METHOD_FRAME, number)
    assert struct.unpack_from(">I", frame, 3) == (len(frame) - 8,)
    assert frame[-1] == methods.FRAME_END
    assert methods.decode(frame[7:-1]) == (method, arguments)


@given(messages)
def test_messages_arrive_as_they_were_published(message: Message) -> None:
    client = opened()
    channel = client.open_channel()

    client.connection.receive(delivered(channel.number, message))

    assert client.events == [("deliver", channel.number, 1, False, "ex", "key", message)]


def delivered(number: int, message: Message) -> bytes:
    """As the broker hands on what we published: with another method, and the same header and body."""
    published = content.publish_frames(number, Publication(message=message, key=""), FRAME_MAX)
    (size,) = struct.unpack_from(">I", published, 3)
    return methods.encode(number, methods.BASIC_DELIVER, "tag", 1, False, "ex", "key") + published[size + 8 :]


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"l\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"T\xff\xff\xff\xff\xff\xff\xff\xff", 2**64 - 1),
        (b"f\x3f\xc0\x00\x00", 1.5),
        (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
        (b"D\x02\xff\xff\xff\x85", -1.23),
        (b"D\xff\x00\x00\x00\x01", 1e-255),
        (b"t\x07", True),
        (b"V", None),
        (b"S\x00\x00\x00\x02\xc3\x28", b"\xc3\x28"),
    ],
)
def test_every_kind_of_field_that_rabbitmq_passes_on_is_read(encoded: bytes, value: HeaderValue) -> None:
    in_table = b"\x01k" + encoded
    in_array = b"\x01kA" + struct.pack(">I", len(encoded)) + encoded

    assert values.read_table(values.long_string(in_table), 0)[0] == {"k": value}
    assert values.read_table(values.long_string(in_array), 0)[0] == {"k": [value]}


def test_names_that_are_not_utf8_are_read_and_can_be_sent_on() -> None:
    raw = b"\xff" * 255

    text, end = values.read_short_string(b"\xff" + raw, 0)

    assert (text, end) == ("?" * 255, 256)
    assert values.short_string(text)
    assert values.read_table(values.long_string(b"\x02a\xe9V"), 0)[0] == {"a?": None}


def test_a_nested_header_is_read_down_to_the_limit_and_can_be_sent_on() -> None:
    """RabbitMQ passes on any depth: refusing the message would cost the connection each time it is delivered."""
    encoded = values.long_string(b"")
    for _ in range(1000):
        encoded = values.long_string(b"\x01kF" + encoded)

    table, end = values.read_table(encoded, 0)

    assert end == len(encoded)
    assert values.table(table)
    depth, inner = 0, table["k"]
    while isinstance(inner, dict):
        depth, inner = depth + 1, inner["k"]
    assert depth == values.MAX_DEPTH
    assert isinstance(inner, bytes)


def nested(depth: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"k": table}
    return table


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (2**63, "64 bits"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (nested(values.MAX_DEPTH), "deeper than 32"),
        ([[nested(values.MAX_DEPTH - 2)]], "deeper than 32"),
        (nested(100_000), "deeper than 32"),
        ({"k" * 256: 1}, "255"),
    ],
)
def test_headers_that_cannot_travel_are_refused_by_name(header: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        values.table({"header": header})


def test_a_header_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="object"):
        values.table({"header": object()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (Message(body=b"", priority=256), "priority 256"),
        (Message(body=b"", priority=-1), "priority -1"),
        (Message(body=b"", timestamp_s=2**64), "timestamp"),
        (Message(body=b"", expiration_s=3651 * 86400), "ten years"),
        (Message(body=b"", expiration_s=math.inf), "ten years"),
        (Message(body=b"", expiration_s=math.nan), "ten years"),
        (Message(body=b"", message_id="é" * 128), "255"),
        (Message(body=b"", headers={"large": "x" * FRAME_MAX}), "one frame"),
    ],
)
def test_properties_that_cannot_travel_are_refused_by_name(message: Message, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        content.publish_frames(1, Publication(message=message, key="q"), FRAME_MAX)


@pytest.mark.parametrize(
    ("expiration_s", "text"), [(0.0015, b"\x012"), (0, b"\x010"), (-1, b"\x010"), (-math.inf, b"\x010")]
)
def test_an_expiration_is_written_in_whole_milliseconds_and_never_below_zero(expiration_s: float, text: bytes) -> None:
    publication = Publication(message=Message(body=b"", expiration_s=expiration_s), key="q")

    assert content.publish_frames(1, publication, FRAME_MAX).endswith(b"\x02" + text + b"\xce")


def test_properties_may_fill_a_frame_to_the_last_byte() -> None:
    frame_max = 4096
    frames = content.publish_frames(1, Publication(message=filled(frame_max), key="q"), frame_max)

    (method_size,) = struct.unpack_from(">I", frames, 3)
    (header_size,) = struct.unpack_from(">I", frames, 8 + method_size + 3)
    assert header_size + 8 == frame_max
    with pytest.raises(ValueError, match="one frame"):
        content.publish_frames(1, Publication(message=filled(frame_max + 1), key="q"), frame_max)


def filled(frame_bytes: int) -> Message:
    """Its header frame has this size: 22 bytes of frame and fixed fields, 4 of table, 7 of entry, 1 of mode."""
    return Message(body=b"", headers={"k": b"x" * (frame_bytes - 34)})
