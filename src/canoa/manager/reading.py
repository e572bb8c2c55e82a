"""What managers read from messages of others, bounded and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.errors import PayloadTooLarge
from canoa.wire import task
from canoa.wire.compression import decompress

if TYPE_CHECKING:
    from canoa.broker.port import Message


def unpacked(message: Message, limit_bytes: int) -> bytes:
    """The body as it was before it was compressed. Raises `PayloadTooLarge` and `Undecodable`."""
    if message.content_encoding:
        return decompress(message.body, message.content_encoding, limit_bytes=limit_bytes)
    if len(message.body) > limit_bytes:
        raise PayloadTooLarge("a message", len(message.body), limit_bytes)
    return message.body


def text(value: object) -> str:
    """Without what a database cannot keep in a text."""
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else ""


def past_ms(value: object, now_ms: int) -> int | None:
    """What is over cannot lie ahead, whatever another machine's clock says."""
    return min(value, now_ms) if type(value) is int and 0 <= value <= task.MAX_MS else None
