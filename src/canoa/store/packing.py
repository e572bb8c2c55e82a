"""Messages and publications as the blobs that a store keeps: msgpack, with the names of the fields."""

from __future__ import annotations

from typing import Any

import msgspec

from canoa.broker.port import Message, Publication

_encoder = msgspec.msgpack.Encoder()
# Untyped: a header may be text or bytes, and msgspec does not choose between the two by type.
_decoder = msgspec.msgpack.Decoder()


def pack(what: Message | Publication) -> bytes:
    return _encoder.encode(what)


def unpack_message(blob: bytes) -> Message:
    return Message(**_decoder.decode(blob))


def unpack_publication(blob: bytes) -> Publication:
    fields: dict[str, Any] = _decoder.decode(blob)
    return Publication(**{**fields, "message": Message(**fields["message"])})
