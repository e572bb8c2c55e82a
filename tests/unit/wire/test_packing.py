"""What is packed comes out as it was, within the limit; more than the limit is refused on both sides."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker.port import Message
from canoa.errors import PayloadTooLarge, Undecodable
from canoa.vocabulary import Layer
from canoa.wire.compression_policy import Compression, CompressionPolicy, CompressionRule
from canoa.wire.packing import pack, unpack

bodies = st.binary(max_size=3000) | st.binary(min_size=1, max_size=8).map(lambda part: part * 3000)


@given(bodies, st.sampled_from(Layer))
def test_what_is_packed_comes_out_as_it_was_and_never_larger(body: bytes, layer: Layer) -> None:
    packed, encoding = pack(body, 100_000, "it", layer=layer)

    assert len(packed) <= len(body)
    assert unpack(Message(body=packed, content_encoding=encoding), 100_000) == body


@pytest.mark.parametrize("algorithm", Compression)
@pytest.mark.parametrize("layer", Layer)
def test_a_body_travels_as_its_layers_rule_says(layer: Layer, algorithm: Compression) -> None:
    policy = CompressionPolicy({layer: CompressionRule(algorithm, 100)})

    packed, encoding = pack(b"canoa" * 20, 1000, "it", layer=layer, policy=policy)

    assert encoding == algorithm
    assert unpack(Message(body=packed, content_encoding=encoding), 100) == b"canoa" * 20
    assert pack(b"a" * 99, 1000, "it", layer=layer, policy=policy) == (b"a" * 99, None)


def test_repetition_is_compressed_and_noise_stays_plain() -> None:
    noise = bytes(range(256))

    assert pack(b"canoa" * 10_000, 10**6, "it")[1] == "zstd"
    assert pack(noise, 10**6, "it", layer=Layer.EDGE) == (noise, None)


def test_large_noise_is_told_by_a_sample_and_stays_plain() -> None:
    noise = random.Random(1).randbytes(200_000)

    assert pack(noise, 10**6, "it") == (noise, None)


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_the_limit_holds_for_the_plain_body_on_both_sides(size: int, limit: int) -> None:
    body = b"a" * size

    if size <= limit:
        packed, encoding = pack(body, limit, "it")
        assert unpack(Message(body=packed, content_encoding=encoding), limit) == body
        return
    with pytest.raises(PayloadTooLarge, match=f"^it is {size:,} bytes, over the limit of {limit:,}; send a reference"):
        pack(body, limit, "it")
    with pytest.raises(PayloadTooLarge):
        unpack(Message(body=body), limit)
    packed, encoding = pack(body, size, "it", layer=Layer.EDGE)
    with pytest.raises(PayloadTooLarge):
        unpack(Message(body=packed, content_encoding=encoding), limit)


@given(st.binary(max_size=100), st.sampled_from(["zstd", "gzip", "", "ZSTD", "identity"]))
def test_a_body_that_is_not_what_it_claims_is_a_named_error(body: bytes, encoding: str) -> None:
    with pytest.raises((Undecodable, PayloadTooLarge)):
        unpack(Message(body=b"\x00" + body, content_encoding=encoding), 1000)
