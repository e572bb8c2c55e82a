"""Bodies shrink and come back whole; forged ones cost little and are refused."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
import tracemalloc
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import PayloadTooLarge, Undecodable
from canoa.wire.compression import compress, decompress
from canoa.wire.compression_policy import Compression

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
GZIP, LZ4, SNAPPY, ZSTD = Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD
MAGIC = {GZIP: b"\x1f\x8b\x08", LZ4: b"\x04\x22\x4d\x18", SNAPPY: b"\xe8\x07", ZSTD: b"\x28\xb5\x2f\xfd"}
RLE_BLOCK = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\x00"  # 128 KiB of zeros in 4 bytes
LAST_BLOCK = b"\x01\x00\x00"


def zstd_bomb(declared_bytes: int | None, *, real_bytes: int = 1024 * MIB) -> bytes:
    """A frame of zeros whose header says what we like. Window of 2 MiB."""
    blocks = RLE_BLOCK * (real_bytes // (128 * 1024)) + LAST_BLOCK
    if declared_bytes is None:
        return MAGIC[ZSTD] + b"\x00\x58" + blocks
    return MAGIC[ZSTD] + b"\xc0\x58" + declared_bytes.to_bytes(8, "little") + blocks


def lz4_frame(body: bytes, *, declared_bytes: int) -> bytes:
    """A frame whose descriptor states a content size, with the checksum over it that belongs there."""
    descriptor = b"\x68\x40" + declared_bytes.to_bytes(8, "little")
    header_checksum = xxh32(descriptor) >> 8 & 0xFF
    block = bytes(cramjam.lz4.compress_block(body, store_size=False))
    return MAGIC[LZ4] + descriptor + bytes([header_checksum]) + len(block).to_bytes(4, "little") + block + bytes(4)


def xxh32(data: bytes) -> int:
    """XXH32 of fewer than 16 bytes, seed 0."""
    mask, value = 0xFFFFFFFF, 374761393 + len(data)
    while len(data) >= 4:
        value = value + int.from_bytes(data[:4], "little") * 3266489917 & mask
        value = ((value << 17 | value >> 15) & mask) * 668265263 & mask
        data = data[4:]
    for byte in data:
        value = value + byte * 374761393 & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def snappy_block(declared_bytes: int, elements: bytes) -> bytes:
    varint = b""
    while declared_bytes >= 0x80:
        varint += bytes([declared_bytes & 0x7F | 0x80])
        declared_bytes >>= 7
    return varint + bytes([declared_bytes]) + elements


ONE_ZERO = b"\x00\x00"
COPY_64 = b"\xfe\x01\x00"  # 64 bytes from one byte back: nothing in snappy is denser


@cache
def gzip_bomb() -> bytes:
    return gzip.compress(bytes(256 * MIB), 9, mtime=0)


def lz4_bomb() -> bytes:
    return bytes(cramjam.lz4.compress(bytes(64 * MIB), level=1))


BOMBS: dict[str, tuple[Compression, Callable[[], bytes], type[Exception]]] = {
    "gzip": (GZIP, gzip_bomb, PayloadTooLarge),
    "gzip of many members": (GZIP, lambda: gzip.compress(bytes(MIB), 9, mtime=0) * 256, PayloadTooLarge),
    "gzip that states a small size": (
        GZIP,
        lambda: gzip_bomb()[:-4] + b"\x01\x00\x00\x00",
        PayloadTooLarge,
    ),
    "lz4": (LZ4, lz4_bomb, PayloadTooLarge),
    "lz4 of many frames": (LZ4, lambda: bytes(cramjam.lz4.compress(bytes(MIB))) * 64, PayloadTooLarge),
    "lz4 that declares little": (LZ4, lambda: lz4_frame(bytes(4 * MIB), declared_bytes=1000), Undecodable),
    "lz4 that declares much": (LZ4, lambda: lz4_frame(bytes(1000), declared_bytes=2**64 - 1), PayloadTooLarge),
    "snappy": (SNAPPY, lambda: snappy_block(64 * MIB, ONE_ZERO + COPY_64 * MIB), PayloadTooLarge),
    "snappy that declares little": (SNAPPY, lambda: snappy_block(1000, ONE_ZERO + COPY_64 * MIB), Undecodable),
    "snappy that declares much": (SNAPPY, lambda: snappy_block(2**32 - 1, ONE_ZERO), PayloadTooLarge),
    "zstd": (ZSTD, lambda: zstd_bomb(None), PayloadTooLarge),
    "zstd that declares nothing in it": (ZSTD, lambda: zstd_bomb(0), Undecodable),
    "zstd that declares little": (ZSTD, lambda: zstd_bomb(1000), Undecodable),
    "zstd that declares the limit": (ZSTD, lambda: zstd_bomb(16 * MIB), Undecodable),
    "zstd that declares much": (ZSTD, lambda: zstd_bomb(2**64 - 1), PayloadTooLarge),
}


@given(st.sampled_from(Compression), st.binary(max_size=2000) | st.binary(max_size=20).map(lambda some: some * 10_000))
def test_a_body_comes_back_whole_at_its_exact_limit(algorithm: Compression, body: bytes) -> None:
    assert decompress(compress(body, algorithm), algorithm, limit_bytes=len(body)) == body


@given(st.sampled_from(Compression), st.binary(min_size=1, max_size=20), st.integers(1, 200_000))
def test_one_byte_over_the_limit_is_too_large(algorithm: Compression, part: bytes, size: int) -> None:
    body = (part * (size // len(part) + 1))[:size]

    with pytest.raises(PayloadTooLarge):
        decompress(compress(body, algorithm), algorithm, limit_bytes=size - 1)


@given(st.sampled_from(Compression), st.binary(max_size=200))
def test_any_bytes_decompress_or_are_refused(algorithm: Compression, body: bytes) -> None:
    for forged in (body, MAGIC[algorithm] + body):
        with suppress(Undecodable, PayloadTooLarge):
            assert len(decompress(forged, algorithm, limit_bytes=10_000)) <= 10_000


@given(st.sampled_from(Compression), st.binary(min_size=1, max_size=3000), st.data())
def test_a_truncated_body_is_undecodable(algorithm: Compression, body: bytes, data: st.DataObject) -> None:
    packed = compress(body, algorithm)
    cut = data.draw(st.integers(0, len(packed) - 1))

    with pytest.raises(Undecodable, match=f"is not {algorithm}"):
        decompress(packed[:cut], algorithm, limit_bytes=len(body))


@pytest.mark.parametrize("algorithm", Compression)
def test_a_large_body_may_be_cut_off_nowhere(algorithm: Compression) -> None:
    """Also where a format's chunks end, every 64 KiB."""
    packed = compress(bytes(range(251)) * 2000, algorithm)
    cuts = range(0, len(packed), max(1, len(packed) // 500))

    for cut in cuts:
        with pytest.raises(Undecodable):
            decompress(packed[:cut], algorithm, limit_bytes=MIB)


@pytest.mark.parametrize("trailing", [b"garbage", b"\x00", bytes(100)])
@pytest.mark.parametrize("algorithm", Compression)
def test_garbage_after_the_body_is_undecodable(algorithm: Compression, trailing: bytes) -> None:
    with pytest.raises(Undecodable):
        decompress(compress(b"body", algorithm) + trailing, algorithm, limit_bytes=MIB)


@pytest.mark.parametrize("algorithm", [SNAPPY, ZSTD])
def test_what_declares_its_size_holds_no_second_part(algorithm: Compression) -> None:
    with pytest.raises(Undecodable):
        decompress(compress(b"body", algorithm) + compress(b"more", algorithm), algorithm, limit_bytes=MIB)


@pytest.mark.parametrize("algorithm", [GZIP, LZ4])
def test_parts_in_a_row_are_one_body_and_share_one_limit(algorithm: Compression) -> None:
    """RFC 1952 and the lz4 frame format say so."""
    both = compress(b"body", algorithm) + compress(b"more", algorithm)

    assert decompress(both, algorithm, limit_bytes=8) == b"bodymore"
    with pytest.raises(PayloadTooLarge):
        decompress(both, algorithm, limit_bytes=7)


@pytest.mark.parametrize("algorithm", [GZIP, LZ4])
def test_a_changed_bit_is_found_by_the_checksum(algorithm: Compression) -> None:
    packed = bytearray(compress(b'{"amount":"19.90"}' * 3, algorithm))
    packed[len(packed) // 2] ^= 1

    with pytest.raises(Undecodable):
        decompress(bytes(packed), algorithm, limit_bytes=MIB)


@pytest.mark.parametrize("algorithm", Compression)
def test_a_body_that_is_not_compressed_at_all_is_undecodable(algorithm: Compression) -> None:
    with pytest.raises(Undecodable, match=rf"13 bytes is not {algorithm}: .*; check that the sender"):
        decompress(b'{"plain":"x"}', algorithm, limit_bytes=MIB)


@pytest.mark.parametrize("packed", [zlib.compress(b"body"), zlib.compress(b"body", wbits=-15)])
def test_neither_zlib_nor_bare_deflate_is_gzip(packed: bytes) -> None:
    with pytest.raises(Undecodable):
        decompress(packed, GZIP, limit_bytes=MIB)


@pytest.mark.parametrize("encoding", ["br", "", "ZSTD", "x" * 10_000])
def test_an_unknown_encoding_is_named_beside_the_known_ones(encoding: str) -> None:
    with pytest.raises(Undecodable, match="'gzip', 'lz4', 'snappy', 'zstd'") as caught:
        decompress(b"", encoding, limit_bytes=MIB)

    assert repr(encoding)[:90] in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_bomb_that_declares_its_size_is_refused_unread() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        decompress(zstd_bomb(1024 * MIB), ZSTD, limit_bytes=16 * MIB)

    assert (caught.value.size_bytes, caught.value.limit_bytes) == (1024 * MIB, 16 * MIB)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_no_more_than_the_limit_whatever_it_declares(name: str) -> None:
    algorithm, make, error = BOMBS[name]
    body = make()

    tracemalloc.start()
    started_s = time.process_time()
    try:
        with pytest.raises(error):
            decompress(body, algorithm, limit_bytes=16 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert time.process_time() - started_s < 1
    assert peak_bytes < 16 * MIB + 256 * 1024


@pytest.mark.parametrize(
    ("algorithm", "body"),
    [
        (ZSTD, zstd_bomb(100 * MIB, real_bytes=0)),
        (LZ4, lz4_frame(b"little", declared_bytes=100 * MIB)),
        (SNAPPY, snappy_block(100 * MIB, ONE_ZERO)),
    ],
)
def test_a_few_bytes_that_declare_much_buy_no_large_allocation(algorithm: Compression, body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable):
            decompress(body, algorithm, limit_bytes=128 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB


def test_a_declared_size_that_is_true_is_believed() -> None:
    """So the forged ones above were refused for their lies alone."""
    assert decompress(lz4_frame(b"little", declared_bytes=6), LZ4, limit_bytes=6) == b"little"
    assert decompress(snappy_block(1 + 64, ONE_ZERO + COPY_64), SNAPPY, limit_bytes=65) == bytes(65)


RESIDENT = """
import resource, sys
from canoa.errors import CanoaError
from canoa.wire.compression import decompress
body = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(body, sys.argv[1], limit_bytes=16 * 1024 * 1024)
except CanoaError as exc:
    print(type(exc).__name__, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("algorithm", Compression)
def test_the_decoders_own_memory_is_bounded_too(algorithm: Compression) -> None:
    widest_window = MAGIC[ZSTD] + b"\x00\x88" + zstd_bomb(None)[6:]  # 128 MiB, the most that zstd accepts
    body = widest_window if algorithm is ZSTD else BOMBS[algorithm][1]()

    ended = subprocess.run(
        [sys.executable, "-c", RESIDENT, algorithm], input=body, capture_output=True, timeout=60, check=True
    )

    error, grown_kib = ended.stdout.split()
    assert error == b"PayloadTooLarge"
    assert int(grown_kib) < 48 * 1024  # what came out, and zstd's window over it


def test_a_stream_of_undeclared_size_is_read_up_to_the_limit() -> None:
    body = zstd_bomb(None, real_bytes=MIB)

    assert decompress(body, ZSTD, limit_bytes=MIB) == bytes(MIB)
    with pytest.raises(PayloadTooLarge):
        decompress(body, ZSTD, limit_bytes=MIB - 1)
