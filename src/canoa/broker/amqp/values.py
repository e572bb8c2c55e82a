"""AMQP's elementary values: short and long strings, and field tables.

Decoding trusts nothing: every length is checked against what is there, and tables nest at most `MAX_DEPTH` deep.
Integers are written with 64 bits, so a header reads back as it was written whatever its size.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from canoa.broker.amqp.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import HeaderValue

MAX_DEPTH: Final = 32

_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")
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
}


def short_string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 255:
        raise ValueError(f"{text[:40]!r}… is {len(raw)} bytes; names and short properties hold at most 255 in AMQP")
    return bytes((len(raw),)) + raw


def long_string(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw


def table(entries: Mapping[str, HeaderValue]) -> bytes:
    return long_string(b"".join([short_string(key) + _field(value) for key, value in entries.items()]))


def _field(value: HeaderValue) -> bytes:
    match value:
        case str():
            return b"S" + long_string(value.encode())
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return b"l" + _packed_int(value)
        case float():
            return b"d" + _F64.pack(value)
        case bytes():
            return b"x" + long_string(value)
        case None:
            return b"V"
        case list():
            return b"A" + long_string(b"".join([_field(item) for item in value]))
        case dict():
            return b"F" + table(value)
        case _:
            raise TypeError(
                f"a header cannot hold {type(value).__name__} ({value!r}); use text, numbers, bytes or lists"
            )


def _packed_int(value: int) -> bytes:
    try:
        return _I64.pack(value)
    except struct.error:
        raise ValueError(f"a header cannot hold the integer {value}: it needs more than 64 bits") from None


def read_short_string(data: bytes, at: int) -> tuple[str, int]:
    try:
        end = at + 1 + data[at]
    except IndexError:
        raise ProtocolError("a short string is cut off") from None
    return _text(_slice(data, at + 1, end)), end


def read_long_string(data: bytes, at: int) -> tuple[bytes, int]:
    if at + 4 > len(data):
        raise ProtocolError("a long string is cut off")
    (size,) = _U32.unpack_from(data, at)
    return _slice(data, at + 4, at + 4 + size), at + 4 + size


def read_table(data: bytes, at: int, depth: int = 0) -> tuple[dict[str, HeaderValue], int]:
    raw, end = read_long_string(data, at)
    if depth > MAX_DEPTH:
        raise ProtocolError(f"a table nests deeper than {MAX_DEPTH}")
    entries: dict[str, HeaderValue] = {}
    at = 0
    while at < len(raw):
        key, at = read_short_string(raw, at)
        entries[key], at = _read_field(raw, at, depth)
    return entries, end


def _read_field(data: bytes, at: int, depth: int) -> tuple[HeaderValue, int]:
    if at >= len(data):
        raise ProtocolError("a table field is cut off")
    kind = data[at]
    at += 1
    if kind == 0x53:  # S
        raw, at = read_long_string(data, at)
        return _text_or_bytes(raw), at
    fixed = _FIXED.get(kind)
    if fixed is not None:
        _slice(data, at, at + fixed.size)
        return fixed.unpack_from(data, at)[0], at + fixed.size
    match chr(kind):
        case "t":
            return _slice(data, at, at + 1) != b"\x00", at + 1
        case "V":
            return None, at
        case "x":
            return read_long_string(data, at)
        case "F":
            return read_table(data, at, depth + 1)
        case "A":
            return _read_array(data, at, depth + 1)
        case "D":
            raw = _slice(data, at, at + 5)
            return int.from_bytes(raw[1:], "big", signed=True) / 10 ** raw[0], at + 5
        case other:
            raise ProtocolError(f"unknown table field type {other!r}")


def _read_array(data: bytes, at: int, depth: int) -> tuple[HeaderValue, int]:
    raw, end = read_long_string(data, at)
    if depth > MAX_DEPTH:
        raise ProtocolError(f"a table nests deeper than {MAX_DEPTH}")
    items: list[HeaderValue] = []
    at = 0
    while at < len(raw):
        item, at = _read_field(raw, at, depth)
        items.append(item)
    return items, end


def _slice(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise ProtocolError("a value is cut off")
    return data[start:end]


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise ProtocolError(f"a short string is not UTF-8: {raw[:40]!r}") from exc


def _text_or_bytes(raw: bytes) -> str | bytes:
    """Long strings carry text by custom only: what is not UTF-8 stays bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
