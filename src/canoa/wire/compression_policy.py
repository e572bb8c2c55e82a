"""Which bodies are compressed, and how: one rule per layer. Pure; the algorithms themselves are in `compression.py`."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from canoa.errors import SettingError
from canoa.vocabulary import Layer


class Compression(enum.StrEnum):
    """An algorithm, spelled as in `content-encoding`."""

    GZIP = "gzip"
    LZ4 = "lz4"
    SNAPPY = "snappy"
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


RULE: Final = rf"(none|({'|'.join(Compression)}):[0-9]{{1,10}})"
"""A rule as text: `zstd:256` is that algorithm from so many bytes on, `none` is never."""


def parse_rule(name: str, text: str) -> CompressionRule:
    """Raises `SettingError`, under that name."""
    if not re.fullmatch(RULE, text):
        known = ", ".join(Compression)
        raise SettingError(
            f"{name} is {text!r:.40}; use 'none', or an algorithm ({known}) "
            f"and the size in bytes it starts at, as in 'zstd:256'"
        )
    algorithm, _, threshold = text.partition(":")
    return CompressionRule(Compression(algorithm), int(threshold)) if threshold else CompressionRule(None, 0)


# Measured with JSON records of sensors: bytes saved, and µs of processor time to compress + decompress.
#     size          256 B            1 KiB           16 KiB            100 KiB
#     gzip      119   11 +  9    739   13 + 10    13.4 kB  48 + 33    84.0 kB  283 + 144
#     lz4        96    1 + 15    641    2 + 15    12.4 kB  21 + 31    80.6 kB  101 + 179
#     snappy    112    1 +  2    651    1 +  2    12.5 kB  12 + 10    80.2 kB   74 +  34
#     zstd      135   18 + 19    774   20 + 19    13.9 kB  43 + 32    88.2 kB  178 +  64
# zstd saves most, so it suits links that are slower than processors. A rule starts where the bytes saved take longer to
# send than that time: at 10 Mbit/s, 100 Mbit/s and 1 Gbit/s. At 1 Gbit/s snappy would be cheaper still; it is not the
# default, since programs of version 0.1 read nothing but zstd.
DEFAULT_EDGE: Final = "zstd:256"
DEFAULT_FOG: Final = "zstd:1024"
DEFAULT_CLOUD: Final = "zstd:16384"

DEFAULT_POLICY: Final = CompressionPolicy(
    MappingProxyType(
        {
            Layer.EDGE: parse_rule("DEFAULT_EDGE", DEFAULT_EDGE),
            Layer.FOG: parse_rule("DEFAULT_FOG", DEFAULT_FOG),
            Layer.CLOUD: parse_rule("DEFAULT_CLOUD", DEFAULT_CLOUD),
        }
    )
)
