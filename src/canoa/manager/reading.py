"""What managers read from messages of others, bounded and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from canoa.errors import PayloadTooLarge, Undecodable
from canoa.wire import task
from canoa.wire.compression import decompress
from canoa.wire.nesting import MAX_DEPTH, json_is_too_deep

if TYPE_CHECKING:
    from canoa.broker.port import Message

_check = msgspec.json.Decoder(msgspec.Raw).decode


def unpacked(message: Message, limit_bytes: int) -> bytes:
    """The body as it was before it was compressed. Raises `PayloadTooLarge` and `Undecodable`."""
    if message.content_encoding:
        return decompress(message.body, message.content_encoding, limit_bytes=limit_bytes)
    if len(message.body) > limit_bytes:
        raise PayloadTooLarge("a message", len(message.body), limit_bytes)
    return message.body


def checked_json(what: str, value: str) -> bytes:
    """The text as JSON that can be read, or `Undecodable`. It is not decoded: who needs it does."""
    try:
        body = value.encode()
        if json_is_too_deep(body):
            raise Undecodable(f"{what} is nested too deeply: more than {MAX_DEPTH} levels; flatten it")
        _check(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
        raise Undecodable(f"{what} is no JSON: {exc}") from exc
    return body


def text(value: object) -> str:
    """Without what a database cannot keep in a text."""
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else ""


def past_ms(value: object, now_ms: int) -> int | None:
    """What is over cannot lie ahead, whatever another machine's clock says."""
    return min(value, now_ms) if type(value) is int and 0 <= value <= task.MAX_MS else None
