"""How bodies are compressed, and how they are unpacked without trusting them.

The algorithms stand in one table, a row each. Which of them a body gets is decided in `compression_policy.py`; what a
message got is said by its `content-encoding`, in a spelling that other programs know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import cramjam

from canoa.errors import PayloadTooLarge, Undecodable
from canoa.wire.compression_policy import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def compress(body: bytes, algorithm: Compression) -> bytes:
    """May come out larger than `body`, by a few bytes, when that is already dense."""
    return _ALGORITHMS[algorithm].compress(body)


def decompress(body: bytes, encoding: str, *, limit_bytes: int) -> bytes:
    """The body as it was, at most `limit_bytes` of it.

    Raises `PayloadTooLarge` for more than that, and `Undecodable` for an unknown encoding and for bytes that are not
    whole. Memory follows what really comes out, not what a header claims: a bomb costs the limit at most,
    a sound body its size twice, for the copy that is returned. Members or frames in a row, where a format has them,
    are one body under one limit; after one that declares its size nothing may follow.
    """
    algorithm = _ALGORITHMS.get(encoding)
    if algorithm is None:
        known = ", ".join(repr(each.value) for each in Compression)
        raise Undecodable(f"content encoding {encoding!r:.100} is unknown; send the body plain, or as one of {known}")
    declared_bytes = algorithm.declared_bytes(body)
    if declared_bytes is not None and declared_bytes > limit_bytes:
        raise PayloadTooLarge(f"a {encoding} body, unpacked,", declared_bytes, limit_bytes)
    try:
        unpacked = _unpack(body, algorithm, ceiling_bytes=limit_bytes if declared_bytes is None else declared_bytes)
    except _Overflow as exc:
        if declared_bytes is None:
            raise PayloadTooLarge(f"a {encoding} body, unpacked so far,", limit_bytes + 1, limit_bytes) from exc
        raise _wrong_size(encoding, declared_bytes) from exc
    except cramjam.DecompressionError as exc:
        raise Undecodable(
            f"a body of {len(body):,} bytes is not {encoding}: {exc}; "
            f"check that the sender compresses it as its content encoding says, and sends all of it"
        ) from exc
    if declared_bytes is not None and len(unpacked) != declared_bytes:  # an empty frame gets past zstd's own check
        raise _wrong_size(encoding, declared_bytes)
    return unpacked


def _wrong_size(encoding: str, declared_bytes: int) -> Undecodable:
    return Undecodable(
        f"a {encoding} body holds more or less than the {declared_bytes:,} bytes it declares; compress it as one frame"
    )


class _Overflow(Exception):
    """More came out than was allowed."""


class _Algorithm(NamedTuple):
    compress: Callable[[bytes], bytes]
    decompress_into: Callable[[bytes, bytearray], int]
    declared_bytes: Callable[[bytes], int | None]  # what the header says about the size, if it does


_FIRST_BYTES = 64 * 1024
_USUAL_RATIO = 16
_GROWTH = 8
_BUFFER_IS_FULL: Final = "failed to write whole buffer"
"""The words of Rust's `io::Write::write_all`: cramjam has no other sign of it."""


def _unpack(body: bytes, algorithm: _Algorithm, *, ceiling_bytes: int) -> bytes:
    """Unpack into a buffer of a size that such a body usually needs, and into larger ones while that is too small:
    a few forged bytes must not buy a large allocation."""
    size = min(ceiling_bytes, max(_FIRST_BYTES, len(body) * _USUAL_RATIO))
    while True:
        unpacked = bytearray(size)
        try:
            written = algorithm.decompress_into(body, unpacked)
        except cramjam.DecompressionError as exc:
            if _BUFFER_IS_FULL not in str(exc):
                raise
            if size >= ceiling_bytes:
                raise _Overflow from exc
            del unpacked  # before the next one is made, not after
            size = min(ceiling_bytes, size * _GROWTH)
        else:
            return bytes(memoryview(unpacked)[:written])


# --- The algorithms -----------------------------------------------------------------------------------


def _no_declared_bytes(_: bytes) -> None:
    return None


_GZIP_LEVEL: Final = 1  # RFC 1952. Level 6 saves 5 % more of 100 KiB of JSON, and takes eight times as long


def _compress_gzip(body: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(body, level=_GZIP_LEVEL))


_LZ4_LEVEL: Final = 1  # the frame format. cramjam's default, 4, saves 3 % more and takes eight times as long


def _compress_lz4(body: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(body, level=_LZ4_LEVEL))


def _lz4_declared_bytes(body: bytes) -> int | None:
    """The frame descriptor's content size, which is optional, and which liblz4 checks by itself."""
    if len(body) < 14 or not body.startswith(b"\x04\x22\x4d\x18") or not body[4] & 0x08:
        return None
    return int.from_bytes(body[6:14], "little")


_SNAPPY_MOST_FROM_BYTE: Final = 22
"""Snappy's densest element is a copy: 64 bytes out of 3. What declares more per byte is a lie."""


def _compress_snappy(body: bytes) -> bytes:
    """The raw block, which is what `content-encoding: snappy` means elsewhere (Prometheus, OpenTelemetry's collector).

    Not the framed format: that has no end mark, so what was cut off between two of its chunks would not be missed.
    """
    return bytes(cramjam.snappy.compress_raw(body))


def _snappy_declared_bytes(body: bytes) -> int | None:
    """A block starts with its size, as a varint. None: it does not even do that, or it lies."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(body)
    except cramjam.DecompressionError:
        return None
    return size


def _decompress_snappy_into(body: bytes, unpacked: bytearray) -> int:
    """In one go, since snappy tells the size beforehand: a buffer that is too small is told as the others tell it."""
    size = _snappy_declared_bytes(body)
    if size is not None and size > len(body) * _SNAPPY_MOST_FROM_BYTE:
        raise cramjam.DecompressionError(f"snappy: {len(body):,} bytes cannot hold the {size:,} they declare")
    if size is not None and size > len(unpacked):
        raise cramjam.DecompressionError(_BUFFER_IS_FULL)
    written: int = cramjam.snappy.decompress_raw_into(body, unpacked)
    return written


_ZSTD_LEVEL: Final = (
    3  # zstd's own default; level 1 was no faster below 16 KiB and 15 % faster above, for the same size
)


def _compress_zstd(body: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(body, level=_ZSTD_LEVEL))


def _zstd_declared_bytes(body: bytes) -> int | None:
    """The frame header's content size (RFC 8878, section 3.1.1.1). None: not stated, or no zstd frame at all."""
    if len(body) < 5 or not body.startswith(b"\x28\xb5\x2f\xfd"):
        return None
    descriptor = body[4]
    is_single_segment = bool(descriptor & 0x20)
    width = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]  # window, dictionary id
    if not width or len(body) < start + width:
        return None
    size = int.from_bytes(body[start : start + width], "little")
    return size + 256 if width == 2 else size


_ALGORITHMS: Mapping[str, _Algorithm] = {
    Compression.GZIP.value: _Algorithm(_compress_gzip, cramjam.gzip.decompress_into, _no_declared_bytes),
    Compression.LZ4.value: _Algorithm(_compress_lz4, cramjam.lz4.decompress_into, _lz4_declared_bytes),
    Compression.SNAPPY.value: _Algorithm(_compress_snappy, _decompress_snappy_into, _snappy_declared_bytes),
    Compression.ZSTD.value: _Algorithm(_compress_zstd, cramjam.zstd.decompress_into, _zstd_declared_bytes),
}
