"""The depth told from bytes is the depth of the value, at the very bound, whatever lies beside and inside it."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from canoa.wire.nesting import MAX_DEPTH, json_is_too_deep, msgpack_is_too_deep

tricky_text = st.text(alphabet='[]{}"\\/a\n\x80é\u2028', max_size=40)
leaves = (
    tricky_text
    | st.binary(max_size=300)
    | st.floats(allow_nan=False)
    | st.integers(-(2**63), 2**64 - 1)
    | st.none()
    | st.datetimes(timezones=st.just(UTC))
)
small = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(tricky_text, inner, max_size=20), max_leaves=30
)


def depth_of(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


@st.composite
def near_the_bound(draw: st.DrawFn) -> Any:
    """A value wrapped until it is about as deep as allowed, with siblings before and after the way down."""
    value = draw(small)
    siblings = draw(st.lists(small, min_size=1, max_size=3))
    for level in range(draw(st.integers(MAX_DEPTH - 5, MAX_DEPTH + 3))):
        sibling = siblings[level % len(siblings)]
        value = {'k"{': sibling, "[": value, "z": 1} if level % 3 else [sibling, value, sibling]
    return value


@settings(max_examples=60, deadline=None)
@given(near_the_bound() | small)
def test_the_bound_is_exact(value: Any) -> None:
    is_too_deep = depth_of(value) > MAX_DEPTH

    assert json_is_too_deep(msgspec.json.encode(value)) == is_too_deep
    assert msgpack_is_too_deep(msgspec.msgpack.encode(value)) == is_too_deep


def test_wide_is_not_deep() -> None:
    wide = [[{"a": "[[["}, []], *range(70_000), {str(n): {} for n in range(70_000)}, "x" * 70_000, b"\x91" * 70_000]

    assert not json_is_too_deep(msgspec.json.encode(wide))
    assert not msgpack_is_too_deep(msgspec.msgpack.encode(wide))


def test_wide_containers_count_like_small_ones() -> None:
    value: Any = 1
    for level in range(MAX_DEPTH + 1):
        value = [0] * 16 + [value] if level % 2 else {**{str(n): n for n in range(16)}, "z": value}

    assert json_is_too_deep(msgspec.json.encode(value))
    assert msgpack_is_too_deep(msgspec.msgpack.encode(value))
    assert not msgpack_is_too_deep(msgspec.msgpack.encode(value["z"]))


@given(st.binary(min_size=MAX_DEPTH + 1, max_size=2000) | st.binary(max_size=50).map(lambda some: some * 100))
def test_no_bytes_confuse_it(body: bytes) -> None:
    assert json_is_too_deep(body) in (True, False)
    assert msgpack_is_too_deep(body) in (True, False)
