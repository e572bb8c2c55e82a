"""What a store puts into its columns: messages and publications as msgpack with named fields, text made plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from canoa.broker.port import Message, Publication

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_encoder = msgspec.msgpack.Encoder()
# Untyped: a header may be text or bytes, and msgspec does not choose between the two by type.
_decoder = msgspec.msgpack.Decoder()


def plain(text: str) -> str:
    """What every database can keep: no NUL, no half of a surrogate pair. Almost always the text itself."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def plain_or_none(text: str | None) -> str | None:
    return None if text is None else plain(text)


def pack(what: Message | Publication) -> bytes:
    return _encoder.encode(what)


def unpack_message(blob: bytes) -> Message:
    return Message(**_decoder.decode(blob))


def unpack_publication(blob: bytes) -> Publication:
    return _publication(_decoder.decode(blob))


def pack_all(what: Sequence[str] | Sequence[Publication]) -> bytes:
    return _encoder.encode(what)


def unpack_texts(blob: bytes) -> list[str]:
    return list(_decoder.decode(blob))


def unpack_publications(blob: bytes) -> Iterable[Publication]:
    return map(_publication, _decoder.decode(blob))


def _publication(fields: dict[str, Any]) -> Publication:
    return Publication(**{**fields, "message": Message(**fields["message"])})
