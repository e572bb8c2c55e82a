"""The last step before the broker and the first after it: size limits and compression, by one rule for both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import PayloadTooLarge
from canoa.vocabulary import Layer
from canoa.wire.codec import ANY
from canoa.wire.compression import compress, decompress
from canoa.wire.compression_policy import DEFAULT_POLICY, Compression, CompressionPolicy, CompressionRule

if TYPE_CHECKING:
    from canoa.broker.port import Message

__all__ = ["ANY", "pack", "packed", "unpack"]


def pack(
    body: bytes,
    limit_bytes: int,
    what: str,
    *,
    layer: Layer = Layer.CLOUD,
    policy: CompressionPolicy = DEFAULT_POLICY,
) -> tuple[bytes, str | None]:
    """The body as it travels and its content encoding, or `PayloadTooLarge`. Stays plain where that is smaller."""
    size = len(body)
    if size > limit_bytes:
        raise PayloadTooLarge(what, size, limit_bytes)
    algorithm = policy.choose(layer, size)
    return (body, None) if algorithm is None else _compressed(body, algorithm)


def packed(message: Message, rule: CompressionRule) -> Message:
    """The message as it travels by that rule; the very same where that is no smaller, or it was compressed before."""
    algorithm = rule.algorithm
    if algorithm is None or len(message.body) < rule.threshold_bytes or message.content_encoding is not None:
        return message
    body, encoding = _compressed(message.body, algorithm)
    return message if encoding is None else msgspec.structs.replace(message, body=body, content_encoding=encoding)


def _compressed(body: bytes, algorithm: Compression) -> tuple[bytes, str | None]:
    if not _looks_compressible(body, algorithm):
        return body, None
    smaller = compress(body, algorithm)
    return (smaller, algorithm.value) if len(smaller) < len(body) else (body, None)


SAMPLE_BYTES: Final = 4096
LARGE_BYTES: Final = 4 * SAMPLE_BYTES
WORTH_A_RATIO: Final = 0.7


def _looks_compressible(body: bytes, algorithm: Compression) -> bool:
    """A sample from the middle tells for a twentieth of the price: pictures, archives and noise stay as they are."""
    if len(body) <= LARGE_BYTES:
        return True
    middle = len(body) // 2
    return len(compress(body[middle : middle + SAMPLE_BYTES], algorithm)) < SAMPLE_BYTES * WORTH_A_RATIO


def unpack(message: Message, limit_bytes: int) -> bytes:
    """The body as it was, or `PayloadTooLarge` or `Undecodable`. Never allocates more than the limit."""
    if message.content_encoding is not None:
        return decompress(message.body, message.content_encoding, limit_bytes=limit_bytes)
    if len(message.body) > limit_bytes:
        raise PayloadTooLarge("the body", len(message.body), limit_bytes)
    return message.body
