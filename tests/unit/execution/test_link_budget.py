"""How a budget is written, and how much its window lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import SettingError
from canoa.execution.link_budget import HOLD_MS, SLOTS, LinkBudget, Window, parse_budget

MINUTE = 60_000
KILO = LinkBudget(1000, MINUTE, "1kB/min")

PIECES = st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 700)), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("text", "max_bytes", "per_ms"),
    [
        ("10MB/day", 10_000_000, 86_400_000),
        ("200kB/min", 200_000, 60_000),
        ("5MB/h", 5_000_000, 3_600_000),
        ("64B/s", 64, 1000),
        ("2GB/day", 2_000_000_000, 86_400_000),
    ],
)
def test_a_budget_is_a_number_of_bytes_per_time(text: str, max_bytes: int, per_ms: int) -> None:
    assert parse_budget("link_budget", text) == LinkBudget(max_bytes, per_ms, text)


@pytest.mark.parametrize(
    "text", ["", "10", "10MB", "0MB/day", "-1MB/day", "1.5MB/h", "10MB/week", "10mb/day", "1MB/h "]
)
def test_what_is_no_budget_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError, match=r"link_budget_edge is .*such as '10MB/day'"):
        parse_budget("link_budget_edge", text)


@given(PIECES, st.integers(100, 3000), st.sampled_from([1000, MINUTE, 7777]))
def test_no_window_sees_more_than_the_budget_and_the_last_piece(
    pieces: list[tuple[int, int]], max_bytes: int, per_ms: int
) -> None:
    window = Window(LinkBudget(max_bytes, per_ms, ""))
    now_ms = 123_456.0
    spent: list[tuple[float, int]] = []
    for pause_ms, size_bytes in pieces:
        now_ms += pause_ms
        if window.has_room(now_ms):
            window.spend(size_bytes, now_ms)
            spent.append((now_ms, size_bytes))

    for last, (last_ms, last_bytes) in enumerate(spent):
        seen = sum(size_bytes for at_ms, size_bytes in spent[: last + 1] if at_ms > last_ms - per_ms)
        assert seen < max_bytes + last_bytes


@given(PIECES, st.integers(100, 3000))
def test_there_is_room_when_it_is_said_and_not_before(pieces: list[tuple[int, int]], max_bytes: int) -> None:
    window = Window(LinkBudget(max_bytes, MINUTE, ""))
    now_ms = 0.0
    for pause_ms, size_bytes in pieces:
        now_ms += pause_ms
        window.spend(size_bytes, now_ms)

    room_ms = window.room_at_ms(now_ms)

    assert window.has_room(now_ms) == (room_ms == now_ms)
    assert room_ms <= now_ms + MINUTE + 2 * MINUTE / SLOTS
    if room_ms > now_ms:
        assert not window.has_room(room_ms - 1)
        assert window.has_room(room_ms)


def test_all_of_it_may_be_spent_at_once_and_comes_back_a_window_later() -> None:
    window = Window(KILO)

    window.spend(1000, 5.0)

    assert not window.has_room(5.0 + MINUTE - 1)
    assert window.has_room(5.0 + MINUTE + 2 * MINUTE / SLOTS)


def test_what_is_about_to_be_spent_is_room_that_nobody_else_finds() -> None:
    window = Window(KILO)

    window.hold(1000, 0.0)
    assert not window.has_room(0.0)

    window.release(1000)
    window.spend(300, 0.0)  # compressed
    assert window.has_room(0.0)


def test_what_is_held_and_never_sent_is_given_up() -> None:
    window = Window(KILO)
    window.hold(5000, 0.0)

    assert window.room_at_ms(0.0) == HOLD_MS
    assert window.has_room(HOLD_MS)
