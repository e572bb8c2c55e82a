"""The AMQP methods Canoa sends or understands, as a table, and their encoding.

This is the slow road, for everything that happens a few times per connection. The three methods that happen once per
message (`basic.publish`, `basic.deliver`, `basic.ack`) are in `content.py`.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from canoa.broker.amqp import values
from canoa.broker.amqp.errors import ProtocolError

METHOD_FRAME: Final = 1
HEADER_FRAME: Final = 2
BODY_FRAME: Final = 3
HEARTBEAT_FRAME: Final = 8
FRAME_END: Final = 0xCE

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

_FRAME_HEAD = struct.Struct(">BHI")
_IDS = struct.Struct(">HH")
_NUMBERS: Final = {
    "o": struct.Struct(">B"),
    "h": struct.Struct(">H"),
    "l": struct.Struct(">I"),
    "q": struct.Struct(">Q"),
}


class Method(NamedTuple):
    """`fields`: o, h, l, q are unsigned integers of 1, 2, 4, 8 bytes; s and S short and long strings; F a table;
    b a bit (neighbouring bits share a byte)."""

    name: str
    class_id: int
    method_id: int
    fields: str = ""

    @property
    def ids(self) -> int:
        return self.class_id << 16 | self.method_id


CONNECTION_START = Method("connection.start", 10, 10, "ooFSS")
CONNECTION_START_OK = Method("connection.start-ok", 10, 11, "FsSs")
CONNECTION_TUNE = Method("connection.tune", 10, 30, "hlh")
CONNECTION_TUNE_OK = Method("connection.tune-ok", 10, 31, "hlh")
CONNECTION_OPEN = Method("connection.open", 10, 40, "ssb")
CONNECTION_OPEN_OK = Method("connection.open-ok", 10, 41, "s")
CONNECTION_CLOSE = Method("connection.close", 10, 50, "hshh")
CONNECTION_CLOSE_OK = Method("connection.close-ok", 10, 51)
CONNECTION_BLOCKED = Method("connection.blocked", 10, 60, "s")
CONNECTION_UNBLOCKED = Method("connection.unblocked", 10, 61)
CHANNEL_OPEN = Method("channel.open", 20, 10, "s")
CHANNEL_OPEN_OK = Method("channel.open-ok", 20, 11, "S")
CHANNEL_FLOW = Method("channel.flow", 20, 20, "b")
CHANNEL_FLOW_OK = Method("channel.flow-ok", 20, 21, "b")
CHANNEL_CLOSE = Method("channel.close", 20, 40, "hshh")
CHANNEL_CLOSE_OK = Method("channel.close-ok", 20, 41)
EXCHANGE_DECLARE = Method("exchange.declare", 40, 10, "hssbbbbbF")
EXCHANGE_DECLARE_OK = Method("exchange.declare-ok", 40, 11)
EXCHANGE_BIND = Method("exchange.bind", 40, 30, "hsssbF")
EXCHANGE_BIND_OK = Method("exchange.bind-ok", 40, 31)
QUEUE_DECLARE = Method("queue.declare", 50, 10, "hsbbbbbF")
QUEUE_DECLARE_OK = Method("queue.declare-ok", 50, 11, "sll")
QUEUE_BIND = Method("queue.bind", 50, 20, "hsssbF")
QUEUE_BIND_OK = Method("queue.bind-ok", 50, 21)
QUEUE_PURGE = Method("queue.purge", 50, 30, "hsb")
QUEUE_PURGE_OK = Method("queue.purge-ok", 50, 31, "l")
QUEUE_DELETE = Method("queue.delete", 50, 40, "hsbbb")
QUEUE_DELETE_OK = Method("queue.delete-ok", 50, 41, "l")
BASIC_QOS = Method("basic.qos", 60, 10, "lhb")
BASIC_QOS_OK = Method("basic.qos-ok", 60, 11)
BASIC_CONSUME = Method("basic.consume", 60, 20, "hssbbbbF")
BASIC_CONSUME_OK = Method("basic.consume-ok", 60, 21, "s")
BASIC_CANCEL = Method("basic.cancel", 60, 30, "sb")
BASIC_CANCEL_OK = Method("basic.cancel-ok", 60, 31, "s")
BASIC_PUBLISH = Method("basic.publish", 60, 40, "hssbb")
BASIC_RETURN = Method("basic.return", 60, 50, "hsss")
BASIC_DELIVER = Method("basic.deliver", 60, 60, "sqbss")
BASIC_ACK = Method("basic.ack", 60, 80, "qb")
BASIC_NACK = Method("basic.nack", 60, 120, "qbb")
CONFIRM_SELECT = Method("confirm.select", 85, 10, "b")
CONFIRM_SELECT_OK = Method("confirm.select-ok", 85, 11)

UNDERSTOOD: Final[dict[int, Method]] = {
    method.ids: method for method in list(globals().values()) if isinstance(method, Method)
}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%b%b\xce" % (_FRAME_HEAD.pack(kind, channel, len(payload)), payload)


HEARTBEAT: Final = frame(HEARTBEAT_FRAME, 0, b"")


def encode(channel: int, method: Method, *arguments: Any) -> bytes:
    """A whole method frame."""
    parts = [_IDS.pack(method.class_id, method.method_id)]
    bits: list[bool] = []
    for code, value in zip(method.fields, arguments, strict=True):
        if code == "b":
            bits.append(value)
            continue
        parts.append(_packed_bits(bits))
        bits.clear()
        parts.append(_encode_field(code, value))
    parts.append(_packed_bits(bits))
    return frame(METHOD_FRAME, channel, b"".join(parts))


def _packed_bits(bits: list[bool]) -> bytes:
    return bytes((sum(bit << place for place, bit in enumerate(bits)),)) if bits else b""


def _encode_field(code: str, value: Any) -> bytes:
    match code:
        case "s":
            return values.short_string(value)
        case "S":
            return values.long_string(value)
        case "F":
            return values.table(value)
        case _:
            return _NUMBERS[code].pack(value)


def decode(payload: bytes) -> tuple[Method, tuple[Any, ...]]:
    """The method in a method frame's payload, with its arguments."""
    if len(payload) < 4:
        raise ProtocolError("a method frame is cut off")
    method = UNDERSTOOD.get(int.from_bytes(payload[:4], "big"))
    if method is None:
        raise ProtocolError(f"unknown method {_IDS.unpack_from(payload)}")
    arguments: list[Any] = []
    at, bit = 4, 0
    for code in method.fields:
        if code == "b":
            value, at, bit = _read_bit(payload, at, bit)
        else:
            bit = 0
            value, at = _decode_field(code, payload, at)
        arguments.append(value)
    if at != len(payload):
        raise ProtocolError(f"{method.name} is longer than its arguments")
    return method, tuple(arguments)


def _read_bit(payload: bytes, at: int, bit: int) -> tuple[bool, int, int]:
    """Bits share a byte, which is passed (`at` moves on) with the first of them."""
    if bit == 0:
        at += 1
    if at > len(payload):
        raise ProtocolError("a bit is cut off")
    return bool(payload[at - 1] >> bit & 1), at, bit + 1


def _decode_field(code: str, payload: bytes, at: int) -> tuple[Any, int]:
    match code:
        case "s":
            return values.read_short_string(payload, at)
        case "S":
            return values.read_long_string(payload, at)
        case "F":
            return values.read_table(payload, at)
        case _:
            number = _NUMBERS[code]
            if at + number.size > len(payload):
                raise ProtocolError("a number is cut off")
            return number.unpack_from(payload, at)[0], at + number.size
