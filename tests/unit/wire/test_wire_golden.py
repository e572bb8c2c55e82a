"""Bytes of earlier versions, and of others, are read as they were meant. Never change a golden file: add one."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from canoa.wire.codec import Codec, ContentType
from canoa.wire.compression import compress, decompress
from canoa.wire.compression_policy import Compression
from canoa.wire.trace import parse

GOLDEN = Path(__file__).parents[2] / "golden"


class Reading(msgspec.Struct):
    sensor: str
    value: float
    at: datetime
    tags: list[str]
    raw: bytes
    previous: Reading | None = None


CASES: dict[str, tuple[Any, Any]] = {
    "arguments": (dict[str, Any], {"path": "a.png", "width": 80, "crop": None, "sharp": True, "ratio": 0.75}),
    "text": (list[str], ["", "açaí", "水", "🛶", '"\\\n\t\u2028', "\x00"]),
    "integers": (list[int], [0, -1, 127, 128, -32, -33, 255, 65536, -(2**31), 2**32, -(2**63), 2**64 - 1]),
    "floats": (list[float], [0.0, 1.5, -2.5, 0.1, 1e300, 5e-324]),
    "nested": (Any, {"a": [[], {}, [{"b": [1, [2, [3]]]}]], "c": {"d": {"e": None}}}),
    "struct": (
        Reading,
        Reading(
            sensor="valve-7",
            value=21.5,
            at=datetime(2025, 11, 15, 20, 15, 30, 250000, tzinfo=UTC),
            tags=["fog", "edge"],
            raw=b"\x00\xff",
            previous=Reading("valve-7", 21.0, datetime(2025, 11, 15, tzinfo=UTC), [], b""),
        ),
    ),
    "exact": (
        tuple[Decimal, UUID, set[int]],
        (Decimal("19.90"), UUID("12345678-1234-5678-1234-567812345678"), {7}),
    ),
}
SUFFIX = {ContentType.JSON: "json", ContentType.MSGPACK: "msgpack"}


@pytest.mark.parametrize("content_type", list(ContentType))
@pytest.mark.parametrize("name", CASES)
def test_values_are_written_and_read_as_ever(name: str, content_type: ContentType) -> None:
    type_, value = CASES[name]
    golden = (GOLDEN / "codec" / f"{name}.{SUFFIX[content_type]}").read_bytes()

    assert Codec(type_).decode(golden, content_type) == value
    assert Codec(type_).encode(value, content_type) == golden


# Made by the tools and libraries they are named after: gzip 1.12 and Python's own, lz4 1.9.4, libsnappy, zstd 1.5.4.
# What cramjam made was read by each of those, too.
FRAMES = [
    pytest.param(encoding, frame, id=f"{encoding}-{frame.stem}")
    for encoding in Compression
    for frame in sorted((GOLDEN / encoding).glob("*.*"))
    if frame.name != "plain.json"
]


@pytest.mark.parametrize(("encoding", "frame"), FRAMES)
def test_frames_of_other_compressors_are_read(encoding: Compression, frame: Path) -> None:
    """`eight-…` holds it eight times, so that it takes several blocks."""
    plain = (GOLDEN / "zstd" / "plain.json").read_bytes() * (8 if frame.stem.startswith("eight-") else 1)

    assert decompress(frame.read_bytes(), encoding, limit_bytes=len(plain)) == plain


def test_every_algorithm_has_frames_of_others() -> None:
    assert {encoding for each in FRAMES for encoding in each.values[:1]} == set(Compression)


def test_what_is_written_as_gzip_is_read_by_python() -> None:
    plain = (GOLDEN / "zstd" / "plain.json").read_bytes()

    assert gzip.decompress(compress(plain, Compression.GZIP)) == plain


class TraceCase(msgspec.Struct):
    traceparent: str
    tracestate: str | None
    expected: str | None  # as written by us; None: not valid
    state: str | None


TRACES = msgspec.json.decode((GOLDEN / "traceparent.json").read_bytes(), type=list[TraceCase])


@pytest.mark.parametrize("case", TRACES, ids=lambda case: case.traceparent)
def test_trace_contexts_are_read_as_ever(case: TraceCase) -> None:
    context = parse(case.traceparent, case.tracestate)

    assert (context and context.format()) == case.expected
    assert (context and context.state) == case.state


def test_no_golden_file_is_left_out() -> None:
    codec_files = {file.name for file in (GOLDEN / "codec").iterdir()}

    assert codec_files == {f"{name}.{suffix}" for name in CASES for suffix in SUFFIX.values()}
    assert len(list((GOLDEN / "zstd").glob("*.zst"))) >= 5
    assert len(TRACES) >= 10
