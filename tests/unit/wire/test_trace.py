"""Trace context as W3C states it: read leniently about the future, strictly about the rest."""

from __future__ import annotations

from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.wire import trace
from canoa.wire.trace import TraceContext, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01"


def hex_id(digits: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=digits, max_size=digits).filter(lambda text: text.strip("0"))


@given(hex_id(32), hex_id(16), st.integers(0, 3))
def test_what_is_written_is_read_back(trace_id: str, span_id: str, flags: int) -> None:
    context = TraceContext(trace_id, span_id, flags, None)

    assert parse(context.format()) == context


@given(st.text() | st.binary() | st.integers() | st.none(), st.text() | st.none())
def test_anything_else_is_none_and_never_an_error(traceparent: object, tracestate: object) -> None:
    assert parse(traceparent, tracestate) is None


@given(st.integers(0, len(VALID) - 1), st.characters(exclude_characters="0123456789abcdef"))
def test_one_wrong_character_makes_it_invalid(at: int, wrong: str) -> None:
    broken = VALID[:at] + wrong + VALID[at + 1 :]

    assert (parse(broken) is None) == (broken != VALID)


@pytest.mark.parametrize(
    "traceparent",
    [
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        VALID.upper(),
        VALID + "-more",
        VALID + "-",
        VALID + "\n",
        " " + VALID,
        VALID[:-1],
        f"01-{TRACE}-{SPAN}-01more",
        VALID.encode(),
        "\u0660\u0660" + VALID[2:],
    ],
)
def test_an_invalid_traceparent_is_none(traceparent: object) -> None:
    assert parse(traceparent) is None


@pytest.mark.parametrize(
    "traceparent", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later", f"fe-{TRACE}-{SPAN}-01-"]
)
def test_a_later_version_is_read_as_far_as_it_is_known_and_passed_on_as_ours(traceparent: str) -> None:
    context = parse(traceparent)

    assert context == TraceContext(TRACE, SPAN, 1, None)
    assert context.format() == VALID


def test_unknown_flags_are_not_passed_on() -> None:
    context = parse(f"00-{TRACE}-{SPAN}-ff")

    assert context is not None
    assert context.format() == f"00-{TRACE}-{SPAN}-03"


@pytest.mark.parametrize(
    ("tracestate", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" rojo=1 ,\t, congo=2", "rojo=1,congo=2"),
        ("tenant@vendor=a b", "tenant@vendor=a b"),
        ("", None),
        (None, None),
        (b"rojo=1", None),
        ("rojo", None),
        ("Rojo=1", None),
        ("rojo=1=2", None),
        ("rojo=é", None),
        ("rojo=1,rojo=2", None),
        (",".join(f"k{n}=1" for n in range(33)), None),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
    ],
)
def test_a_tracestate_is_kept_or_dropped_without_harm_to_the_trace(tracestate: object, kept: str | None) -> None:
    assert parse(VALID, tracestate) == TraceContext(TRACE, SPAN, 1, kept)


def test_a_long_tracestate_loses_large_members_first_then_the_last_ones() -> None:
    small = [f"k{n:02}={'x' * 46}" for n in range(12)]
    large = "large=" + "x" * 200

    context = parse(VALID, ",".join([small[0], large, *small[1:]]))

    assert context is not None
    assert context.state == ",".join(small[:10])


def test_a_child_stays_in_the_trace() -> None:
    context = parse(VALID, "rojo=1")

    assert context is not None
    assert context.child("00f067aa0ba902b7") == TraceContext(TRACE, "00f067aa0ba902b7", 1, "rojo=1")


def test_the_trace_of_the_message_in_hand_is_current_and_stays_in_its_context() -> None:
    variables = copy_context()
    variables.run(trace.received.set, {"traceparent": VALID})

    assert variables.run(trace.current) == parse(VALID)
    assert trace.current() is None
