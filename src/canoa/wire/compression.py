"""Which bodies are compressed, how, and how they are unpacked without trusting them.

The policy is pure; the algorithms stand in one table, a row each. Whether a message was compressed is said by its
`content-encoding`, which `task.py` writes and reads.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import cramjam
import msgspec

from canoa.errors import PayloadTooLarge, SettingError, Undecodable
from canoa.vocabulary import Layer


class Compression(enum.StrEnum):
    """An algorithm, spelled as in `content-encoding`."""

    ZSTD = "zstd"


class CompressionRule(msgspec.Struct, frozen=True):
    """`algorithm` from `threshold_bytes` on; None never compresses."""

    algorithm: Compression | None
    threshold_bytes: int  # lower saves more traffic, costs CPU on both sides for every small message

    def __post_init__(self) -> None:
        if self.threshold_bytes < 0:
            raise SettingError(f"threshold_bytes is {self.threshold_bytes}; use 0 (compress everything) or more")


class CompressionPolicy(msgspec.Struct, frozen=True):
    """One rule per layer, since links differ more than data does. A layer without a rule does not compress."""

    rules: Mapping[Layer, CompressionRule]

    def choose(self, layer: Layer, size_bytes: int) -> Compression | None:
        rule = self.rules.get(layer)
        return rule.algorithm if rule and size_bytes >= rule.threshold_bytes else None


DEFAULT_POLICY = CompressionPolicy(
    # Measured with JSON records of sensors at zstd level 3; `both` is the time to compress and to decompress:
    #     size      128 B   256 B   512 B   1 KiB   4 KiB   16 KiB   100 KiB   1 MiB
    #     saved      10 B    85 B   225 B   604 B   2.9 kB  12 kB    78 kB     800 kB
    #     both        30       31      32      34      43      79       330    3,450 µs
    # A rule starts where the bytes saved take longer to send than that: at 10 Mbit/s, 100 Mbit/s and 1 Gbit/s.
    rules=MappingProxyType(
        {
            Layer.EDGE: CompressionRule(Compression.ZSTD, 256),
            Layer.FOG: CompressionRule(Compression.ZSTD, 1024),
            Layer.CLOUD: CompressionRule(Compression.ZSTD, 16 * 1024),
        }
    )
)


def compress(body: bytes, algorithm: Compression) -> bytes:
    """May come out larger than `body`, by a few bytes, when that is already dense."""
    return _ALGORITHMS[algorithm].compress(body)


def decompress(body: bytes, encoding: str, *, limit_bytes: int) -> bytes:
    """The body as it was, at most `limit_bytes` of it.

    Raises `PayloadTooLarge` for more than that, and `Undecodable` for an unknown encoding and for bytes that are not
    whole. Memory follows what really comes out, not what a header claims: a bomb costs the limit at most,
    a sound body its size twice, for the copy that is returned.
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


def _unpack(body: bytes, algorithm: _Algorithm, *, ceiling_bytes: int) -> bytes:
    """Unpack into a buffer of a size that such a body usually needs, and into larger ones while that is too small:
    a few forged bytes must not buy a large allocation."""
    size = min(ceiling_bytes, max(_FIRST_BYTES, len(body) * _USUAL_RATIO))
    while True:
        unpacked = bytearray(size)
        try:
            written = algorithm.decompress_into(body, unpacked)
        except cramjam.DecompressionError as exc:
            # The words of Rust's `io::Write::write_all` for a full buffer: cramjam has no other sign of it.
            if "failed to write whole buffer" not in str(exc):
                raise
            if size >= ceiling_bytes:
                raise _Overflow from exc
            del unpacked  # before the next one is made, not after
            size = min(ceiling_bytes, size * _GROWTH)
        else:
            return bytes(memoryview(unpacked)[:written])


_ZSTD_LEVEL = 3  # zstd's own default; level 1 was no faster below 16 KiB and 15 % faster above, for the same size


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
    Compression.ZSTD.value: _Algorithm(_compress_zstd, cramjam.zstd.decompress_into, _zstd_declared_bytes),
}
