"""Values survive the trip, and whatever cannot make it is refused by name."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import Undecodable, WrongUse
from canoa.wire.codec import ANY, Codec, ContentType, TypeMismatch, Unencodable
from canoa.wire.nesting import MAX_DEPTH

JSON, MSGPACK = ContentType.JSON, ContentType.MSGPACK
BOTH = pytest.mark.parametrize("content_type", list(ContentType))

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def is_finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_finite, value))
        case dict():
            return all(map(is_finite, value.values()))
        case _:
            return True


class Resize(msgspec.Struct):
    path: str
    width: int = 100


RESIZE = Codec[Resize](Resize)


@given(values, st.sampled_from(ContentType))
def test_what_is_decoded_is_what_was_encoded_and_json_takes_all_but_infinities(
    value: Any, content_type: ContentType
) -> None:
    if content_type is JSON and not is_finite(value):
        with pytest.raises(Unencodable, match="NaN or an infinity"):
            ANY.encode(value, content_type)
    else:
        assert ANY.decode(ANY.encode(value, content_type), content_type) == value


@given(st.binary(max_size=300), st.sampled_from(ContentType))
def test_any_bytes_decode_or_are_undecodable(body: bytes, content_type: ContentType) -> None:
    with suppress(Undecodable, TypeMismatch):
        ANY.decode(body, content_type)


def test_json_is_the_default_in_both_directions() -> None:
    assert ANY.encode({"a": 1}) == b'{"a":1}'
    assert ANY.decode(b'{"a":1}', None) == {"a": 1}


@pytest.mark.parametrize(
    "content_type", ["Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"']
)
def test_a_content_type_may_be_spelled_as_http_does(content_type: str) -> None:
    assert ANY.decode(b"[1]", content_type) == [1]


@pytest.mark.parametrize("content_type", ["text/xml", "", "application/json; charset=latin-1", "x" * 10_000])
def test_an_unknown_content_type_is_named_beside_the_known_ones(content_type: str) -> None:
    with pytest.raises(Undecodable, match=r"application/json.*application/msgpack") as caught:
        ANY.decode(b"[1]", content_type)

    assert repr(content_type)[:90] in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1,]", b"1 2", b"nul", b"NaN", b"[Infinity]", b'"\xff\xfe"', b'"\\ud800"']
)
def test_broken_json_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match="is not application/json"):
        ANY.decode(body, JSON)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\x92\x01",
        b"\xa2\xff\xfe",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xffx",
    ],
    ids=["empty", "invalid", "trailing", "truncated", "utf-8", "array of 4 G", "map of 4 G", "string of 4 G"],
)
def test_broken_msgpack_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match="is not application/msgpack"):
        ANY.decode(body, MSGPACK)


@BOTH
def test_a_wrong_type_is_told_with_path_and_expectation(content_type: ContentType) -> None:
    body = ANY.encode({"path": "a.png", "width": "wide"}, content_type)

    with pytest.raises(TypeMismatch, match=r"Expected `int`, got `str`, at `\$\.width`; send .* `Resize`") as caught:
        RESIZE.decode(body, content_type)

    assert caught.value.path == "$.width"
    assert isinstance(caught.value, WrongUse)


def test_a_missing_field_is_told() -> None:
    with pytest.raises(TypeMismatch, match=r"missing required field `path`, at `\$`"):
        RESIZE.decode(b"{}", JSON)


def test_an_error_of_the_types_own_check_is_a_mismatch() -> None:
    class Even(msgspec.Struct):
        number: int

        def __post_init__(self) -> None:
            raise KeyError(self.number)

    with pytest.raises(TypeMismatch, match="KeyError: 3"):
        Codec[Even](Even).decode(b'{"number":3}', JSON)


@pytest.mark.parametrize(("body", "type_"), [(b"1e999", float), (b"1" * 5000, int), (b"null", float)])
def test_numbers_out_of_range_are_refused(body: bytes, type_: type) -> None:
    with pytest.raises(TypeMismatch):
        Codec[Any](type_).decode(body, JSON)


def test_the_last_of_duplicate_keys_wins() -> None:
    assert ANY.decode(b'{"a":1,"a":2}', JSON) == {"a": 2}
    assert ANY.decode(b"\x82\xa1a\x01\xa1a\x02", MSGPACK) == {"a": 2}
    assert RESIZE.decode(b'{"path":"a","path":"b"}', JSON) == Resize("b")


def test_json_carries_integers_of_any_usual_size_and_msgpack_64_bits() -> None:
    assert ANY.decode(ANY.encode([None, 10**30]), JSON) == [None, 10**30]
    with pytest.raises(Unencodable, match=r"'int'.*as a string"):
        ANY.encode(2**64, MSGPACK)
    with pytest.raises(Unencodable, match="as a string"):
        ANY.encode(10**5000, JSON)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("more", [None, 10**30, msgspec.Raw(b"1"), "null"])
def test_json_refuses_what_it_would_turn_into_null(number: float, more: object) -> None:
    with pytest.raises(Unencodable, match="'dict' holds NaN or an infinity"):
        ANY.encode({"a": [number], "b": more}, JSON)


def test_msgpack_carries_nan_and_infinities() -> None:
    number, infinity = ANY.decode(ANY.encode([math.nan, -math.inf], MSGPACK), MSGPACK)

    assert math.isnan(number)
    assert infinity == -math.inf


def test_none_and_text_that_looks_like_a_nan_in_msgpack_are_fine_as_json() -> None:
    value = {"a": None, "b": b"\xcb\x7f\xf8", "c": 0.5}

    assert ANY.encode(value) == b'{"a":null,"b":"y3/4","c":0.5}'


@BOTH
@pytest.mark.parametrize(
    ("value", "named"), [(object(), "object"), ({"a": [print]}, "builtin_function"), ({"a": "\ud800"}, "surrogates")]
)
def test_what_cannot_be_encoded_is_named_with_a_remedy(value: object, named: str, content_type: ContentType) -> None:
    with pytest.raises(Unencodable, match=f"{type(value).__name__}.*{named}.*; (use|send) "):
        ANY.encode(value, content_type)


@BOTH
def test_a_value_that_contains_itself_is_refused(content_type: ContentType) -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(Unencodable, match="contains itself"):
        ANY.encode(loop, content_type)


@BOTH
def test_what_is_sent_at_the_deepest_level_can_be_read_and_one_more_is_refused_on_both_sides(
    content_type: ContentType,
) -> None:
    value: Any = "x" * MAX_DEPTH
    for _ in range(MAX_DEPTH):
        value = [value]

    assert ANY.decode(ANY.encode(value, content_type), content_type) == value
    with pytest.raises(Unencodable, match="nested too deeply"):
        ANY.encode([value], content_type)
    inner = ANY.encode(value, content_type)
    with pytest.raises(Undecodable, match="nested too deeply"):
        ANY.decode(b"[" + inner + b"]" if content_type is JSON else b"\x91" + inner, content_type)


N = 100_000
DEEP = {
    "json arrays": (JSON, b"[" * N + b"]" * N),
    "json arrays, open": (JSON, b"[" * N),
    "json objects": (JSON, b'{"path":' * N + b"1" + b"}" * N),
    "json, in a field that is skipped": (JSON, b'{"path":"a","zz":' + b"[" * N + b"]" * N + b"}"),
    "msgpack arrays": (MSGPACK, b"\x91" * N + b"\x01"),
    "msgpack maps": (MSGPACK, b"\x81\xa4path" * N + b"\x01"),
    "msgpack keys": (MSGPACK, b"\x81" * N + b"\x01" * (N + 1)),
    "msgpack, in a field that is skipped": (MSGPACK, b"\x82\xa4path\xa1a\xa2zz" + b"\x91" * N + b"\x01"),
}


class Wrapped(msgspec.Struct):
    path: msgspec.Raw


@pytest.mark.parametrize("codec", [ANY, RESIZE, Codec(Wrapped)], ids=["any", "struct", "raw"])
@pytest.mark.parametrize("case", DEEP)
def test_deep_nesting_is_undecodable_wherever_it_hides(case: str, codec: Codec[Any]) -> None:
    content_type, body = DEEP[case]

    with pytest.raises(Undecodable, match="nested too deeply"):
        codec.decode(body, content_type)


SMALL_STACK = """
import sys, threading
from canoa.errors import Undecodable
from canoa.wire.codec import ANY
sys.setrecursionlimit(10**9)
refused = []
def decode() -> None:
    for body, content_type in ((b"[" * 100_000, "application/json"), (b"\\x91" * 100_000, "application/msgpack")):
        try:
            ANY.decode(body, content_type)
        except Undecodable:
            refused.append(content_type)
    ANY.decode(b'{"a":' * 200 + b"1" + b"}" * 200, None)
threading.stack_size(128 * 1024)
thread = threading.Thread(target=decode)
thread.start()
thread.join()
print(len(refused))
"""


def test_deep_nesting_overflows_no_stack_even_a_small_one_without_recursion_limit() -> None:
    ended = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")


def test_a_body_that_meets_the_interpreters_own_limit_first_is_undecodable_too() -> None:
    body = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    def from_deep_down(levels: int) -> object:
        return from_deep_down(levels - 1) if levels else ANY.decode(body, JSON)

    raised: list[BaseException] = []

    def decode() -> None:
        try:
            from_deep_down(sys.getrecursionlimit() - 100)
        except Exception as exc:
            raised.append(exc)

    thread = threading.Thread(target=decode)  # its own stack: the depth of the test runner's does not count
    thread.start()
    thread.join()
    assert [type(exc) for exc in raised] == ([Undecodable] if sys.version_info < (3, 12) else [])


def test_a_type_that_cannot_travel_is_refused_when_the_codec_is_built() -> None:
    with pytest.raises(TypeError):
        Codec(dict[str, int] | dict[int, str])
