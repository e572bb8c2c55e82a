"""Many messages as one, for what Canoa's own programs send each other at the same moment. Pure functions.

A broker's work is per message, so a hundred that go to one place as one cost it little more than one. A bundle goes
only to whoever is known to read it; to everybody else messages go one by one, as published.
Its body is a msgpack array with one map per message: the fields of `Message`, without those that say nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping  # noqa: TC003  # msgspec looks it up
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from canoa.broker.port import Message
from canoa.errors import PayloadTooLarge, Undecodable

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT_TYPE: Final = "application/vnd.canoa.bundle"

MAX_PARTS: Final = 128
"""More would spare the broker nothing that could be measured: its share of a part is under a hundredth of a message by
then. And all of them are delivered again when whoever had them dies."""

MAX_BYTES: Final = 256 * 1024
"""What is larger travels alone: its bytes cost the broker more than its being a message."""

MAX_TTL_S: Final = 3650 * 86400.0

_Short: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
_Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Octet: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Seconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Ttl: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MAX_TTL_S)]


class Part(Message, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A message that came in a bundle, within the bounds that AMQP would have kept; its headers hold no tables. But
    names are counted in characters, not bytes, which is quicker: whoever sends one on that is too long, hears of it."""

    content_type: _Short | None = None
    content_encoding: _Short | None = None
    headers: Mapping[_Short, str | _Long | float | bool | None] = {}
    priority: _Octet | None = None
    correlation_id: _Short | None = None
    reply_to: _Short | None = None
    expiration_s: _Ttl | None = None
    message_id: _Short | None = None
    timestamp_s: _Seconds | None = None
    type: _Short | None = None
    app_id: _Short | None = None


_numbers = itertools.count(1)
"""By which a broker's answer finds a bundle; whoever reads it goes by its parts."""

_encode = msgspec.msgpack.Encoder().encode
_Parts: TypeAlias = Annotated[list[Part], msgspec.Meta(min_length=1, max_length=MAX_PARTS)]
_decoder: msgspec.msgpack.Decoder[list[Part]] = msgspec.msgpack.Decoder(_Parts)


def is_bundle(message: Message) -> bool:
    return message.content_type == CONTENT_TYPE


def packed(messages: Sequence[Message], *, are_within_bounds: bool = False) -> list[tuple[Message, int]]:
    """As few messages as can hold these, in order, each with how many of them it holds. One alone stays as it is.

    `are_within_bounds`: each is made so that `Part` can hold it, of texts that were checked when they came. Others are
    read before they are sent, which takes longer than the rest: one that whoever gets it would refuse must not take its
    neighbours along."""
    cut = [messages[at : at + MAX_PARTS] for at in range(0, len(messages), MAX_PARTS)]
    return [each for some in cut for each in _packed_or_split(some, is_read=not are_within_bounds)]


def parts(message: Message) -> Sequence[Message]:
    """What a bundle holds, in order; each is still to be checked as if it had come alone. Raises `Undecodable` and
    `PayloadTooLarge`, for all of it."""
    if len(message.body) > MAX_BYTES:
        raise PayloadTooLarge("a bundle", len(message.body), MAX_BYTES, remedy="send fewer messages at once")
    if message.content_encoding is not None:
        raise Undecodable(f"a bundle is compressed ({message.content_encoding!r:.40}), which its parts may be instead")
    return _read(message.body)


def _read(body: bytes) -> list[Part]:
    try:
        found = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise Undecodable(f"a body of {len(body):,} bytes is no bundle: {exc}") from exc
    if CONTENT_TYPE in [part.content_type for part in found]:
        raise Undecodable("a bundle holds a bundle; send their messages side by side")
    return found


def _packed_or_split(messages: Sequence[Message], *, is_read: bool) -> list[tuple[Message, int]]:
    """Halved until it fits: so what fits in no bundle ends up alone."""
    if len(messages) == 1:
        return [(messages[0], 1)]
    body = _body(messages, is_read=is_read)
    if body is not None:
        return [(_bundle(messages, body), len(messages))]
    middle = len(messages) // 2
    halves = messages[:middle], messages[middle:]
    return [each for half in halves for each in _packed_or_split(half, is_read=is_read)]


def _body(messages: Sequence[Message], *, is_read: bool) -> bytes | None:
    """None: a bundle cannot carry these together. `is_read`: or whoever gets it would refuse it."""
    if sum([len(each.body) for each in messages]) > MAX_BYTES:
        return None
    try:
        body = _encode(messages)
        if is_read:
            _read(body)
    except (OverflowError, UnicodeEncodeError, Undecodable):
        return None
    return body if len(body) <= MAX_BYTES else None


def _bundle(messages: Sequence[Message], body: bytes) -> Message:
    """On disk if one of them should be, and there as long as the one that may wait longest."""
    ttls_s = [each.expiration_s for each in messages]
    return Message(
        body=body,
        content_type=CONTENT_TYPE,
        persistent=any(each.persistent for each in messages),
        expiration_s=None if None in ttls_s else max(ttl_s for ttl_s in ttls_s if ttl_s is not None),
        message_id=f"bundle-{next(_numbers)}",
    )
