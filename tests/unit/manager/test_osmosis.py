"""When work leaves a layer and comes back: a long queue sends on what is too much, slowness all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from canoa.manager.osmosis import CALM, HOLD_MS, MAX_HOLD_MS, Tide, filled, slowed

NOW_MS = 1_700_000_000_000
LIMIT_MS = 100.0


def test_a_queue_that_is_too_long_sends_on_what_comes_until_there_is_room() -> None:
    full = filled(CALM, 11, 10)

    assert full.is_out
    assert filled(full, 9, 10).is_out  # a little shorter is no room
    assert not filled(full, 7, 10).is_out
    assert not filled(CALM, 10, 10).is_out


def test_a_slow_layer_gets_nothing_for_a_while_and_then_another_chance() -> None:
    slow = slowed(CALM, 150, LIMIT_MS, NOW_MS)

    assert slow.is_out
    assert slowed(slow, None, LIMIT_MS, NOW_MS + HOLD_MS - 1).is_out
    assert slowed(slow, 90, LIMIT_MS, NOW_MS + HOLD_MS).is_out  # hardly better
    assert not slowed(slow, None, LIMIT_MS, NOW_MS + HOLD_MS).is_out


def test_too_few_answers_make_nobody_slow() -> None:
    assert slowed(CALM, None, LIMIT_MS, NOW_MS) == CALM


def test_a_layer_that_stays_slow_is_tried_ever_less_often() -> None:
    tide, now_ms, turns = CALM, NOW_MS, 0
    for _ in range(3600):  # an hour: slow whenever it gets anything
        before = tide
        tide = slowed(tide, None if tide.is_slow else 500, LIMIT_MS, now_ms)
        turns += tide.is_slow != before.is_slow
        now_ms += 1000

    assert tide.hold_ms == MAX_HOLD_MS
    assert turns <= 36  # with ten seconds each time it would be 650


def test_one_that_was_well_for_long_is_forgiven() -> None:
    tide = slowed(slowed(CALM, 150, LIMIT_MS, NOW_MS), None, LIMIT_MS, NOW_MS + HOLD_MS)

    soon = slowed(tide, 150, LIMIT_MS, NOW_MS + 2 * HOLD_MS)
    late = slowed(tide, 150, LIMIT_MS, NOW_MS + 100 * HOLD_MS)

    assert (soon.hold_ms, late.hold_ms) == (2 * HOLD_MS, HOLD_MS)


def test_a_clock_that_goes_back_holds_nobody_for_ever() -> None:
    slow = slowed(CALM, 150, LIMIT_MS, NOW_MS)

    assert not slowed(slow, None, LIMIT_MS, NOW_MS - 86_400_000).is_out


@given(st.lists(st.tuples(st.floats(0, 300), st.integers(-1000, 60_000)), max_size=50))
def test_whatever_happens_the_hold_stays_within_bounds(told: list[tuple[float, int]]) -> None:
    tide: Tide = CALM
    now_ms = NOW_MS
    for p95_ms, after_ms in told:
        now_ms += after_ms
        tide = slowed(tide, p95_ms, LIMIT_MS, now_ms)
        assert HOLD_MS <= tide.hold_ms <= MAX_HOLD_MS
