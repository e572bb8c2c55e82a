"""Every layer compresses by its own rule, which can be written down as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import SettingError
from canoa.vocabulary import Layer
from canoa.wire.compression_policy import (
    DEFAULT_POLICY,
    Compression,
    CompressionPolicy,
    CompressionRule,
    parse_rule,
)


@pytest.mark.parametrize("layer", Layer)
def test_the_default_policy_compresses_from_each_layers_threshold_on(layer: Layer) -> None:
    threshold = DEFAULT_POLICY.rules[layer].threshold_bytes

    assert DEFAULT_POLICY.choose(layer, threshold - 1) is None
    assert DEFAULT_POLICY.choose(layer, threshold) is Compression.ZSTD


def test_the_slower_the_link_the_smaller_the_bodies_that_are_compressed() -> None:
    thresholds = [DEFAULT_POLICY.rules[layer].threshold_bytes for layer in (Layer.EDGE, Layer.FOG, Layer.CLOUD)]

    assert thresholds == sorted(set(thresholds))


def test_a_layer_without_rule_or_algorithm_is_left_plain() -> None:
    policy = CompressionPolicy({Layer.EDGE: CompressionRule(None, 0)})

    assert policy.choose(Layer.EDGE, 2**20) is None
    assert policy.choose(Layer.CLOUD, 2**20) is None


def test_a_negative_threshold_is_refused() -> None:
    with pytest.raises(SettingError, match="-1"):
        CompressionRule(Compression.ZSTD, -1)


@given(st.sampled_from(Compression), st.integers(0, 2**32))
def test_a_rule_is_an_algorithm_and_the_size_it_starts_at(algorithm: Compression, threshold_bytes: int) -> None:
    assert parse_rule("it", f"{algorithm}:{threshold_bytes}") == CompressionRule(algorithm, threshold_bytes)


def test_none_never_compresses() -> None:
    assert CompressionPolicy({Layer.FOG: parse_rule("it", "none")}).choose(Layer.FOG, 2**30) is None


@pytest.mark.parametrize(
    "text", ["", "zstd", "zstd:", "zstd:-1", "zstd:1k", "ZSTD:1", "br:1", "none:1", " zstd:1", "zstd:1\n", "zstd:٣"]
)
def test_what_is_no_rule_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_rule("compression_fog", text)

    assert str(caught.value).startswith(
        f"compression_fog is {text!r}; use 'none', or an algorithm (gzip, lz4, snappy, "
    )
    assert str(caught.value).endswith("as in 'zstd:256'")
