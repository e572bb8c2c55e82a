"""Bodies shrink and come back whole; forged ones cost little and are refused."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import PayloadTooLarge, SettingError, Undecodable
from canoa.vocabulary import Layer
from canoa.wire.compression import (
    DEFAULT_POLICY,
    Compression,
    CompressionPolicy,
    CompressionRule,
    compress,
    decompress,
)

MIB = 1024 * 1024
ZSTD = Compression.ZSTD
MAGIC = b"\x28\xb5\x2f\xfd"
RLE_BLOCK = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"\x00"  # 128 KiB of zeros in 4 bytes
LAST_BLOCK = b"\x01\x00\x00"


def bomb(declared_bytes: int | None, *, real_bytes: int = 1024 * MIB) -> bytes:
    """A frame of zeros whose header says what we like. Window of 2 MiB."""
    blocks = RLE_BLOCK * (real_bytes // (128 * 1024)) + LAST_BLOCK
    if declared_bytes is None:
        return MAGIC + b"\x00\x58" + blocks
    return MAGIC + b"\xc0\x58" + declared_bytes.to_bytes(8, "little") + blocks


@given(st.sampled_from(Compression), st.binary(max_size=2000) | st.binary(max_size=20).map(lambda some: some * 10_000))
def test_a_body_comes_back_whole_at_its_exact_limit(algorithm: Compression, body: bytes) -> None:
    assert decompress(compress(body, algorithm), algorithm, limit_bytes=len(body)) == body


@given(st.binary(max_size=200))
def test_any_bytes_decompress_or_are_refused(body: bytes) -> None:
    for forged in (body, MAGIC + body):
        with suppress(Undecodable, PayloadTooLarge):
            assert len(decompress(forged, ZSTD, limit_bytes=10_000)) <= 10_000


@given(st.binary(min_size=1, max_size=3000), st.data())
def test_a_truncated_frame_is_undecodable(body: bytes, data: st.DataObject) -> None:
    frame = compress(body, ZSTD)
    cut = data.draw(st.integers(0, len(frame) - 1))

    with pytest.raises(Undecodable, match="is not zstd"):
        decompress(frame[:cut], ZSTD, limit_bytes=len(body))


@pytest.mark.parametrize("trailing", [b"garbage", b"\x00", compress(b"more", ZSTD)])
def test_what_follows_the_frame_is_not_accepted(trailing: bytes) -> None:
    with pytest.raises(Undecodable):
        decompress(compress(b"body", ZSTD) + trailing, ZSTD, limit_bytes=MIB)


def test_a_body_that_is_not_compressed_at_all_is_undecodable() -> None:
    with pytest.raises(Undecodable, match=r"13 bytes is not zstd: .*; check that the sender"):
        decompress(b'{"plain":"x"}', ZSTD, limit_bytes=MIB)


@pytest.mark.parametrize("encoding", ["br", "", "ZSTD", "x" * 10_000])
def test_an_unknown_encoding_is_named_beside_the_known_ones(encoding: str) -> None:
    with pytest.raises(Undecodable, match="'zstd'") as caught:
        decompress(b"", encoding, limit_bytes=MIB)

    assert repr(encoding)[:90] in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_bomb_that_declares_its_size_is_refused_unread() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        decompress(bomb(1024 * MIB), ZSTD, limit_bytes=16 * MIB)

    assert (caught.value.size_bytes, caught.value.limit_bytes) == (1024 * MIB, 16 * MIB)


@pytest.mark.parametrize(
    ("declared_bytes", "error"),
    [
        (None, PayloadTooLarge),
        (0, Undecodable),
        (1000, Undecodable),
        (16 * MIB, Undecodable),
        (2**64 - 1, PayloadTooLarge),
    ],
)
def test_a_bomb_costs_no_more_than_the_limit_whatever_it_declares(
    declared_bytes: int | None, error: type[Exception]
) -> None:
    body = bomb(declared_bytes)
    assert len(body) < 40_000

    tracemalloc.start()
    started_s = time.perf_counter()
    try:
        with pytest.raises(error):
            decompress(body, ZSTD, limit_bytes=16 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert time.perf_counter() - started_s < 1
    assert peak_bytes < 16 * MIB + 256 * 1024


def test_a_few_bytes_that_declare_much_buy_no_large_allocation() -> None:
    body = bomb(100 * MIB, real_bytes=0)

    tracemalloc.start()
    try:
        with pytest.raises(Undecodable):
            decompress(body, ZSTD, limit_bytes=128 * MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < MIB


RESIDENT = """
import resource, sys
from canoa.errors import CanoaError
from canoa.wire.compression import decompress
body = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(body, "zstd", limit_bytes=16 * 1024 * 1024)
except CanoaError as exc:
    print(type(exc).__name__, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_decoders_own_memory_is_bounded_too() -> None:
    widest_window = MAGIC + b"\x00\x88" + bomb(None)[6:]  # 128 MiB, the most that zstd accepts

    ended = subprocess.run(
        [sys.executable, "-c", RESIDENT], input=widest_window, capture_output=True, timeout=60, check=True
    )

    error, grown_kib = ended.stdout.split()
    assert error == b"PayloadTooLarge"
    assert int(grown_kib) < 48 * 1024  # what came out, and zstd's window over it


def test_a_stream_of_undeclared_size_is_read_up_to_the_limit() -> None:
    body = bomb(None, real_bytes=MIB)

    assert decompress(body, ZSTD, limit_bytes=MIB) == bytes(MIB)
    with pytest.raises(PayloadTooLarge):
        decompress(body, ZSTD, limit_bytes=MIB - 1)


@pytest.mark.parametrize("layer", Layer)
def test_the_default_policy_compresses_from_each_layers_threshold_on(layer: Layer) -> None:
    threshold = DEFAULT_POLICY.rules[layer].threshold_bytes

    assert DEFAULT_POLICY.choose(layer, threshold - 1) is None
    assert DEFAULT_POLICY.choose(layer, threshold) is ZSTD


def test_the_slower_the_link_the_smaller_the_bodies_that_are_compressed() -> None:
    thresholds = [DEFAULT_POLICY.rules[layer].threshold_bytes for layer in (Layer.EDGE, Layer.FOG, Layer.CLOUD)]

    assert thresholds == sorted(set(thresholds))


def test_a_layer_without_rule_or_algorithm_is_left_plain() -> None:
    policy = CompressionPolicy({Layer.EDGE: CompressionRule(None, 0)})

    assert policy.choose(Layer.EDGE, MIB) is None
    assert policy.choose(Layer.CLOUD, MIB) is None


def test_a_negative_threshold_is_refused() -> None:
    with pytest.raises(SettingError, match="-1"):
        CompressionRule(ZSTD, -1)
