"""What the caller binds is what the worker calls; what does not fit is refused before it is sent, with the usage."""

from __future__ import annotations

import dataclasses
import enum
import re
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.context import Context  # noqa: TC001  # annotations of actions are read when the program runs
from canoa.errors import ActionDefinitionError, ArgumentsRefused, Undecodable
from canoa.signature import Signature
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


def plain(path: str, count: int = 3) -> str:
    return f"{path} {count}"


def every_kind(a: int, /, b: int, *rest: int, c: int = 7, **more: int) -> tuple[Any, ...]:
    return (a, b, rest, c, more)


def typed(at: datetime, size: Size, price: Decimal, colour: Colour = Colour.RED, raw: bytes = b"") -> None: ...


def defaults(pair: Any = (1, 2), bag: list[int] = [1], colour: Colour = Colour.RED, none: int | None = None) -> Any:  # noqa: B006
    return pair, bag, colour, none


def journey(
    function: Callable[..., Any], *args: Any, content_type: ContentType = ContentType.JSON, **kwargs: Any
) -> Any:
    """Call it as a worker would, with what a caller sent."""
    signature = Signature(function, "shop.test")
    body = signature.encode(args, kwargs, content_type)
    called, named = signature.call_form(signature.decode(body, content_type))
    return function(*called, **named)


numbers = st.integers(-(2**63), 2**63 - 1)


@given(
    a=numbers,
    b=numbers,
    rest=st.lists(numbers),
    c=st.none() | numbers,
    more=st.dictionaries(st.text().filter(lambda name: name not in ("b", "c")), numbers),
    content_type=st.sampled_from(ContentType),
)
def test_what_is_bound_is_what_is_called(
    a: int, b: int, rest: list[int], c: int | None, more: dict[str, int], content_type: ContentType
) -> None:
    named = {**more} if c is None else {"c": c, **more}

    signature = Signature(every_kind, "shop.test")
    body = signature.encode((a, b, *rest), named, content_type)
    args, kwargs = signature.call_form(signature.decode(body, content_type))

    assert every_kind(*args, **kwargs) == every_kind(a, b, *rest, **named)


@pytest.mark.parametrize("content_type", list(ContentType))
def test_types_arrive_as_they_were(content_type: ContentType) -> None:
    signature = Signature(typed, "shop.test")
    given_args = (datetime(2025, 1, 2), Size(3), Decimal("1.10"), Colour.RED, b"\x00\xff")

    args, _ = signature.call_form(signature.decode(signature.encode(given_args, {}, content_type), content_type))

    assert args == given_args


def test_defaults_stay_with_the_worker() -> None:
    assert Signature(plain, "shop.test").encode(("a",), {}, ContentType.JSON) == b'{"path":"a"}'
    assert journey(defaults) == ((1, 2), [1], Colour.RED, None)


def test_the_context_is_not_the_callers_business() -> None:
    def wants(ctx: Context, path: str) -> None: ...

    signature = Signature(wants, "shop.test")

    assert signature.takes_context
    assert signature.describe() == "(path: str)"
    assert signature.encode(("a",), {}, ContentType.JSON) == b'{"path":"a"}'


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1,), {}, r"Expected `str`, got `int`, at `\$.path`"),
        ((), {}, "Missing required argument 'path'"),
        (("a", 1, 2), {}, "Extra positional arguments"),
        (("a",), {"widht": 1}, "there is no parameter 'widht'; it takes"),
        ((), {"pat": "a"}, r"there is no parameter 'pat'; did you mean 'path'\? it takes"),
        (("a",), {"path": "b"}, "Argument 'path' given by name and position"),
        (("a",), {"count": True}, r"Expected `int`, got `bool`, at `\$.count`"),
        (("a",), {"count": 1.5}, r"Expected `int`, got `float`, at `\$.count`"),
        (("a",), {"count": object()}, "cannot be sent as application/json"),
        (("\ud800",), {}, "lone surrogates"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_what_would(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentsRefused, match=said) as caught:
        Signature(plain, "shop.plain").encode(args, kwargs, ContentType.JSON)

    assert str(caught.value).startswith("shop.plain: ")
    assert "it takes (path: str, count: int = 3)" in str(caught.value)


def test_arguments_nested_too_deeply_are_refused() -> None:
    def anything(value: Any) -> None: ...

    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]

    with pytest.raises(ArgumentsRefused, match="nested too deeply"):
        Signature(anything, "shop.deep").encode((deep,), {}, ContentType.JSON)


@given(st.binary(max_size=200), st.sampled_from([*ContentType, None, "text/plain"]))
def test_any_bytes_are_arguments_or_a_named_error(body: bytes, content_type: str | None) -> None:
    signature = Signature(every_kind, "shop.test")

    with suppress(ArgumentsRefused, Undecodable):
        args, kwargs = signature.call_form(signature.decode(body, content_type))
        every_kind(*args, **kwargs)


@pytest.mark.parametrize("more", ["b", "c"])
def test_a_parameter_given_twice_by_a_foreign_body_is_refused(more: str) -> None:
    signature = Signature(every_kind, "shop.test")
    arguments = signature.decode(msgspec.json.encode({"a": 1, "b": 2, "more": {more: 3}}), None)

    with pytest.raises(ArgumentsRefused, match=f"shop.test: parameter '{more}' is given twice; it takes"):
        signature.call_form(arguments)


class Custom:
    pass


def takes_custom(value: Custom) -> None: ...


def gives_custom() -> list[Custom]:
    return []


def missing_name(value: UUID) -> None: ...


def broken_text(value: int) -> None: ...


broken_text.__annotations__["value"] = "1 +"


def context_last(path: str, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (takes_custom, "its parameters cannot travel: .*Custom.* use str, numbers"),
        (gives_custom, "its result cannot travel: .*Custom"),
        (missing_name, "its annotations name 'UUID', which cannot be found.*import it at module level"),
        (broken_text, "its annotations cannot be read"),
        (context_last, "its context must be its first parameter"),
    ],
)
def test_a_function_that_cannot_travel_is_no_action(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(ActionDefinitionError, match=said):
        Signature(function, "shop.test")


# --- What managers send: any value, which knows no parameters -----------------------------------------


def one(value: Any) -> None: ...


def one_and_more(ctx: Context, value: Any, loud: bool = False) -> None: ...


def only_optional(value: int = 1) -> None: ...


def two(left: int, right: int) -> None: ...


def nothing(ctx: Context) -> None: ...


def gathers(*values: int) -> None: ...


def sized(size: Size) -> None: ...


@pytest.mark.parametrize(
    ("function", "data", "body"),
    [
        (one, b'{"value": 1}', b'{"value": 1}'),
        (one, b'{"other": 1}', b'{"value":{"other": 1}}'),
        (one, b'{"value": 1, "other": 2}', b'{"value":{"value": 1, "other": 2}}'),
        (one, b"[1, 2]", b'{"value":[1, 2]}'),
        (one, b"null", b'{"value":null}'),
        (one, b"{}", b'{"value":{}}'),
        (one_and_more, b'"text"', b'{"value":"text"}'),
        (one_and_more, b'{"value": 1, "loud": true}', b'{"value": 1, "loud": true}'),
        (only_optional, b"{}", b"{}"),
        (only_optional, b"7", b'{"value":7}'),
        (two, b'{"left": 1, "right": 2}', b'{"left": 1, "right": 2}'),
        (two, b"[1, 2]", b"[1, 2]"),
        (nothing, b'{"whatever": 1}', b"{}"),
        (gathers, b'{"values": [1]}', b'{"values": [1]}'),
        (gathers, b"[1]", b"[1]"),
        (only_optional, b'{"other": 1}', b'{"other": 1}'),
        (sized, b'{"other": 1}', b'{"size":{"other": 1}}'),
    ],
)
def test_a_routed_value_is_the_arguments_or_the_one_parameter(
    function: Callable[..., Any], data: bytes, body: bytes
) -> None:
    assert Signature(function, "shop.test").routed_body(data) == body


@pytest.mark.parametrize(
    ("function", "data", "said"),
    [
        (
            only_optional,
            b'{"valeu": 1}',
            "there is no parameter 'valeu'; did you mean 'value'? it takes (value: int = 1)",
        ),
        (only_optional, b'{"x": 1}', "there is no parameter 'x'; it takes (value: int = 1)"),
        (two, b'{"left": 1, "rigth": 2}', "there is no parameter 'rigth'; did you mean 'right'? it takes (left: "),
        (every_kind, b'{"d": 2}', "there is no parameter 'd'; it takes (a: int, /, b: int, *rest: int"),
        (
            sized,
            b'{"siez": {"width": 1}}',
            "Object missing required field `width`, at `$.size`; if 'siez' is to be a parameter, did you mean 'size'?",
        ),
        (sized, b'{"height": 1}', "Object missing required field `width`, at `$.size`; it takes (size: "),
    ],
)
def test_a_mistyped_parameter_is_told_as_such_also_where_there_is_only_one(
    function: Callable[..., Any], data: bytes, said: str
) -> None:
    signature = Signature(function, "shop.test")

    with pytest.raises(ArgumentsRefused, match=re.escape(said)):
        signature.decode(signature.routed_body(data), None)


@pytest.mark.parametrize("data", [b'1, "loud": true', b"1} ", b"", b"\xff", b"[" * 100_000, b'{"value":'])
def test_half_a_value_brings_no_parameters_of_its_own(data: bytes) -> None:
    signature = Signature(one_and_more, "shop.test")

    with pytest.raises((ArgumentsRefused, Undecodable)):
        signature.decode(signature.routed_body(data), None)
