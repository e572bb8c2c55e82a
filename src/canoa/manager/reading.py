"""What managers read from messages of others, bounded and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from canoa.errors import CanoaError
from canoa.wire import fields, packing, sapparchi, task

if TYPE_CHECKING:
    from canoa.broker.port import Message


T = TypeVar("T")

PLAIN: Final = frozenset({"", "identity", "utf-8", "utf8", "ascii", "us-ascii"})
"""Content encodings that are none: other programs say so outright, or write their text's encoding there."""

ENVELOPE_MARGIN_BYTES: Final = 512 * 1024
"""What a message may hold besides its data: names, ids, a plan."""


def as_said(message: Message) -> Message:
    """With what a device of MQTT 5 said besides its body, where RabbitMQ's plugin brought it."""
    return fields.unspelt(message) if sapparchi.BY_MQTT in message.headers else message


def is_plain(message: Message) -> bool:
    return message.content_encoding is None or message.content_encoding.lower() in PLAIN


def unpacked(message: Message, limit_bytes: int) -> bytes:
    """The body as it was before it was compressed. Raises `PayloadTooLarge` and `Undecodable`."""
    if message.content_encoding is not None and is_plain(message):
        message = msgspec.structs.replace(message, content_encoding=None)
    return packing.unpack(message, limit_bytes)


def envelope(message: Message, limit_bytes: int) -> bytes:
    """The body of a message whose data may have `limit_bytes`: quoted, as JSON inside JSON, that may be twice as long.
    Raises `PayloadTooLarge` and `Undecodable`."""
    if message.content_encoding is None and len(message.body) <= limit_bytes:  # as almost always
        return message.body
    return unpacked(message, 2 * limit_bytes + ENVELOPE_MARGIN_BYTES)


def part(message: Message, decoder: msgspec.json.Decoder[T], *, limit_bytes: int) -> T | None:
    """Of a body that cannot be read as a whole, the little that `decoder` asks for; None where even that cannot be. A
    plain one may be too large: what is skipped costs nothing but a look."""
    try:
        return decoder.decode(message.body if is_plain(message) else envelope(message, limit_bytes))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, CanoaError):
        return None


def text(value: object) -> str:
    """Without what a database cannot keep in a text."""
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else ""


def past_ms(value: object, now_ms: int) -> int | None:
    """What is over cannot lie ahead, whatever another machine's clock says."""
    if type(value) is not int or not 0 <= value <= task.MAX_MS:
        return None
    return value if value < now_ms else now_ms
