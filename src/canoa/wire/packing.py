"""The last step before the broker and the first after it: size limits and compression, by one rule for both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.errors import PayloadTooLarge
from canoa.vocabulary import Layer
from canoa.wire.codec import ANY
from canoa.wire.compression import compress, decompress
from canoa.wire.compression_policy import DEFAULT_POLICY, Compression, CompressionPolicy

if TYPE_CHECKING:
    from canoa.broker.port import Message

__all__ = ["ANY", "pack", "unpack"]


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
    if algorithm is None or not _looks_compressible(body, algorithm):
        return body, None
    packed = compress(body, algorithm)
    return (packed, algorithm.value) if len(packed) < size else (body, None)


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
