"""The arithmetic of a rate, against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.gcra import reserved

ASKED = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5)), min_size=1, max_size=40)


@given(ASKED, st.floats(0.5, 500), st.integers(1, 6))
def test_no_window_sees_more_starts_than_burst_and_rate_allow(
    asked: list[tuple[int, int]], per_ms: float, burst: int
) -> None:
    now_ms, next_ms = 1_000_000, 0.0
    starts: list[float] = []
    for pause_ms, count in asked:
        now_ms += pause_ms
        room = reserved(next_ms, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=10**9)
        assert room is not None
        first_ms, next_ms = room
        starts += [max(now_ms, first_ms + number * per_ms) for number in range(count)]

    starts.sort()
    for at, earliest in enumerate(starts):
        for number, latest in enumerate(starts[at:], start=1):
            assert number <= burst + (latest - earliest) / per_ms + 1e-6


def test_what_is_too_far_away_is_not_reserved() -> None:
    assert reserved(1000.0, count=1, per_ms=10, burst=1, now_ms=0, within_ms=999) is None
    assert reserved(1000.0, count=2, per_ms=10, burst=1, now_ms=0, within_ms=1000) == (1000.0, 1020.0)
