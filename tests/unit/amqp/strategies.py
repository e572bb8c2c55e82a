"""Everything that may travel over AMQP, as Hypothesis strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from canoa.broker.amqp import methods
from canoa.broker.port import HeaderValue, Message

if TYPE_CHECKING:
    from canoa.broker.amqp.methods import Method

utf8 = st.text(st.characters(codec="utf-8"), max_size=63)  # at most 252 bytes
finite = st.floats(allow_nan=False, allow_infinity=False)
int64 = st.integers(-(2**63), 2**63 - 1)

header_values: st.SearchStrategy[HeaderValue] = st.recursive(
    st.none() | st.booleans() | int64 | finite | utf8 | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(utf8, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(utf8, header_values, max_size=5)

messages = st.builds(
    Message,
    body=st.binary(max_size=200),
    content_type=st.none() | utf8,
    content_encoding=st.none() | utf8,
    headers=tables,
    persistent=st.booleans(),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | utf8,
    reply_to=st.none() | utf8,
    expiration_s=st.none() | st.integers(0, 315_360_000_000).map(lambda milliseconds: milliseconds / 1000),
    message_id=st.none() | utf8,
    timestamp_s=st.none() | st.integers(0, 2**64 - 1),
    type=st.none() | utf8,
    app_id=st.none() | utf8,
)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "o": st.integers(0, 2**8 - 1),
    "h": st.integers(0, 2**16 - 1),
    "l": st.integers(0, 2**32 - 1),
    "q": st.integers(0, 2**64 - 1),
    "s": utf8,
    "S": st.binary(max_size=300),
    "F": tables,
    "b": st.booleans(),
}


@st.composite
def methods_with_arguments(draw: st.DrawFn) -> tuple[Method, tuple[Any, ...]]:
    method = draw(st.sampled_from(list(methods.UNDERSTOOD.values())))
    return method, tuple(draw(_FIELDS[code]) for code in method.fields)


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The same bytes, cut anywhere."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=40)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
