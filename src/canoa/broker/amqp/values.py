"""AMQP's elementary values: short and long strings, and field tables.

Decoding trusts nothing: every length is checked against what is there, and a table is decoded `MAX_DEPTH` deep.
Integers are written with 64 bits, so a header reads back as it was written whatever its size.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import TYPE_CHECKING, Final

from canoa.broker.amqp.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import HeaderValue

MAX_DEPTH: Final = 32
"""What is nested deeper is refused in what we send. In what comes it stays encoded, as bytes: brokers pass such a
message on, and refusing it would cost us the connection, again and again, until somebody else takes the message."""

_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")
_unpack_u32 = _U32.unpack_from
_unpack_i64 = _I64.unpack_from
_FIXED: Final[dict[int, struct.Struct]] = {
    ord("b"): struct.Struct(">b"),
    ord("B"): struct.Struct(">B"),
    ord("s"): struct.Struct(">h"),
    ord("u"): struct.Struct(">H"),
    ord("I"): struct.Struct(">i"),
    ord("i"): struct.Struct(">I"),
    ord("l"): _I64,
    ord("L"): _I64,
    ord("T"): struct.Struct(">Q"),
    ord("f"): struct.Struct(">f"),
    ord("d"): _F64,
    ord("t"): struct.Struct(">?"),
}
_OCTETS: Final = [bytes((number,)) for number in range(256)]
_TEXT: Final = ord("S")
_INTEGER: Final = ord("l")


# --- Writing --------------------------------------------------------------------------------------


def short_string(text: str) -> bytes:
    raw = text.encode()
    try:
        return _OCTETS[len(raw)] + raw
    except IndexError:
        raise ValueError(
            f"{text[:40]!r}… is {len(raw)} bytes; names and short properties hold at most 255 in AMQP"
        ) from None


known_short_string = functools.lru_cache(maxsize=1024)(short_string)
"""For what repeats from message to message: header names, content types, reply queues."""


def long_string(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw


def table(entries: Mapping[str, HeaderValue], depth: int = 0) -> bytes:
    return long_string(b"".join([known_short_string(key) + _field(value, depth) for key, value in entries.items()]))


def _field(value: HeaderValue, depth: int) -> bytes:
    match value:
        case str():
            return b"S" + long_string(value.encode())
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return b"l" + _packed_int(value)
        case float():
            return b"d" + _packed_float(value)
        case bytes():
            return b"x" + long_string(value)
        case None:
            return b"V"
        case list() | dict():
            return _nested(value, depth + 1)
        case _:
            raise TypeError(
                f"a header cannot hold {type(value).__name__} ({value!r}); use text, numbers, bytes or lists"
            )


def _nested(value: list[HeaderValue] | dict[str, HeaderValue], depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise ValueError(f"a header nests deeper than {MAX_DEPTH}; put such data into the body")
    if isinstance(value, dict):
        return b"F" + table(value, depth)
    return b"A" + long_string(b"".join([_field(item, depth) for item in value]))


def _packed_int(value: int) -> bytes:
    try:
        return _I64.pack(value)
    except struct.error:
        raise ValueError(f"a header cannot hold the integer {value}: it needs more than 64 bits") from None


def _packed_float(value: float) -> bytes:
    """RabbitMQ 3.10 answers a number that is none with `541 INTERNAL_ERROR`, and the connection is gone."""
    if not math.isfinite(value):
        raise ValueError(f"a header cannot hold {value}: brokers refuse it")
    return _F64.pack(value)


# --- Reading: each returns the value and where the next one begins ----------------------------------


def read_short_string(data: bytes, at: int) -> tuple[str, int]:
    start = at + 1
    try:
        end = start + data[at]
    except IndexError:
        raise ProtocolError("a short string is cut off") from None
    if end > len(data):
        raise ProtocolError("a short string is cut off")
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        return _lenient_text(data[start:end]), end


def read_long_string(data: bytes, at: int) -> tuple[bytes, int]:
    end = _end_of_long(data, at, len(data))
    return data[at + 4 : end], end


def read_table(data: bytes, at: int) -> tuple[dict[str, HeaderValue], int]:
    end = _end_of_long(data, at, len(data))
    return _entries(data, at + 4, end, 0), end


def _entries(data: bytes, at: int, end: int, depth: int) -> dict[str, HeaderValue]:
    """Decoded in place, in one loop: almost every header is text or one of our own integers, and calling a function
    for each key and value would double the time. All else takes the long way."""
    entries: dict[str, HeaderValue] = {}
    while at < end:
        start = at + 1
        at = start + data[at]
        if at >= end:
            raise ProtocolError("a table's key is cut off")
        try:
            key = data[start:at].decode()
        except UnicodeDecodeError:
            key = _lenient_text(data[start:at])
        kind = data[at]
        if kind == _INTEGER and at + 9 <= end:
            (entries[key],) = _unpack_i64(data, at + 1)
            at += 9
        elif kind == _TEXT and at + 5 <= end:
            start = at + 5
            at = start + _unpack_u32(data, at + 1)[0]
            if at > end:
                raise ProtocolError("a table's text is cut off")
            try:
                entries[key] = data[start:at].decode()
            except UnicodeDecodeError:
                entries[key] = data[start:at]
        else:
            entries[key], at = _read_field(data, at, end, depth)
    return entries


def _read_array(data: bytes, at: int, end: int, depth: int) -> list[HeaderValue]:
    items: list[HeaderValue] = []
    while at < end:
        item, at = _read_field(data, at, end, depth)
        items.append(item)
    return items


def _read_field(data: bytes, at: int, end: int, depth: int) -> tuple[HeaderValue, int]:
    kind = data[at]
    at += 1
    fixed = _FIXED.get(kind)
    if fixed is not None:
        _check(at + fixed.size, end)
        return fixed.unpack_from(data, at)[0], at + fixed.size
    match chr(kind):
        case "V":
            return None, at
        case "D":
            _check(at + 5, end)
            return int.from_bytes(data[at + 1 : at + 5], "big", signed=True) / 10 ** data[at], at + 5
        case "S" | "x" | "F" | "A":
            stop = _end_of_long(data, at, end)
            return _read_long(kind, data, at + 4, stop, depth), stop
        case other:
            raise ProtocolError(f"unknown table field type {other!r}")


def _read_long(kind: int, data: bytes, at: int, end: int, depth: int) -> HeaderValue:
    if kind == _TEXT:
        return _text_or_bytes(data[at:end])
    if kind == ord("x") or depth == MAX_DEPTH:
        return data[at:end]
    if kind == ord("F"):
        return _entries(data, at, end, depth + 1)
    return _read_array(data, at, end, depth + 1)


def _end_of_long(data: bytes, at: int, end: int) -> int:
    """Where that ends which begins with its length in four bytes, and must end within `end`."""
    if at + 4 > end:
        raise ProtocolError("a length is cut off")
    (size,) = _unpack_u32(data, at)
    stop: int = at + 4 + size
    if stop > end:
        raise ProtocolError("a value is cut off")
    return stop


def _check(stop: int, end: int) -> None:
    if stop > end:
        raise ProtocolError("a value is cut off")


def _lenient_text(raw: bytes) -> str:
    """Brokers pass on whatever bytes a publisher put into a name or a short property, so what is not UTF-8 is no reason
    to give up the connection. With one `?` per foreign byte it still fits when it is sent on."""
    return raw.decode("ascii", "replace").replace("\N{REPLACEMENT CHARACTER}", "?")


def _text_or_bytes(raw: bytes) -> str | bytes:
    """Long strings carry text by custom only: what is not UTF-8 stays bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
