"""Fast actions take many ahead, slow and unknown ones few, and none wavers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.prefetch import (
    LEAST_BUNDLES,
    TIERS,
    RunEstimate,
    Tier,
    deliveries_for,
    prefetch_for,
    prefetch_under_rate,
)


def estimate_of(*runs_s: float, body_bytes: int = 100) -> RunEstimate:
    estimate = RunEstimate()
    for run_s in runs_s:
        estimate.add(run_s, body_bytes)
    return estimate


def steady(mean_run_s: float | None, mean_bytes: float = 100) -> RunEstimate:
    """None: too few runs to say."""
    return RunEstimate(0 if mean_run_s is None else 1000, mean_run_s or 0.0, mean_bytes)


@pytest.mark.parametrize(
    ("concurrency", "mean_run_s", "current", "prefetch"),
    [
        (50, None, None, 100),
        (50, None, 200, 100),
        (50, 0.00002, None, 1000),
        (50, 0.0003, 1000, 1000),
        (50, 0.0003, 200, 200),
        (50, 0.001, None, 200),
        (50, 0.001, 100, 200),
        (50, 0.001, 1000, 200),
        (50, 1.0, None, 100),
        (50, 1.0, 200, 100),
        (50, 1.0, 1000, 100),
        (50, 0.007, None, 100),
        (50, 0.007, 100, 100),
        (50, 0.007, 200, 200),
        (1, 1800.0, 200, 2),
        (500, 0.001, None, 1000),
    ],
)
def test_prefetch_follows_run_time(
    concurrency: int, mean_run_s: float | None, current: int | None, prefetch: int
) -> None:
    assert prefetch_for(concurrency, steady(mean_run_s), current) == prefetch


@pytest.mark.parametrize(
    ("mean_bytes", "current", "prefetch"),
    [
        (32 * 1024, None, 1000),
        (64 * 1024, 1000, 1000),
        (64 * 1024, 200, 200),
        (100 * 1024, 1000, 200),
        (1024 * 1024, 200, 100),
    ],
)
def test_large_messages_are_not_hoarded_however_fast_they_run(
    mean_bytes: int, current: int | None, prefetch: int
) -> None:
    assert prefetch_for(50, steady(0.00002, mean_bytes), current) == prefetch


@given(st.integers(1, 1000), st.none() | st.floats(0, 1e5), st.floats(0, 1e7), st.none() | st.integers(1, 2000))
def test_it_is_one_of_three_and_asking_again_changes_nothing(
    concurrency: int, mean_run_s: float | None, mean_bytes: float, current: int | None
) -> None:
    estimate = steady(mean_run_s, mean_bytes)

    prefetch = prefetch_for(concurrency, estimate, current)

    assert prefetch in [max(wished, 2 * concurrency) for wished in (0, 200, 1000)]
    assert prefetch_for(concurrency, estimate, prefetch) == prefetch


@pytest.mark.parametrize("tier", TIERS)
@given(data=st.data())
def test_a_mean_between_the_bounds_never_changes_it(tier: Tier, data: st.DataObject) -> None:
    concurrency = data.draw(st.integers(1, 99))
    means_s = data.draw(st.lists(st.floats(tier.below_s, tier.until_s, exclude_max=True)))
    prefetch = start = prefetch_for(concurrency, steady(data.draw(st.floats(tier.below_s * 0.9, tier.until_s))), None)

    for mean_s in means_s:
        prefetch = prefetch_for(concurrency, steady(mean_s), prefetch)

    assert prefetch == start


def test_a_few_runs_say_nothing_yet() -> None:
    assert estimate_of(*[0.001] * 19).mean_s is None
    assert estimate_of(*[0.001] * 20).mean_s == pytest.approx(0.001)


def test_one_slow_run_makes_a_fast_action_slow_at_once_and_many_fast_ones_make_it_fast_again() -> None:
    estimate = estimate_of(*[0.001] * 1000, 1.0)
    assert prefetch_for(10, estimate, 200) == 20

    for _ in range(100):
        estimate.add(0.001, 100)
    assert prefetch_for(10, estimate, 20) == 200


@given(st.lists(st.floats(0, 1e4), min_size=20, max_size=200))
def test_the_mean_lies_among_the_runs(runs_s: list[float]) -> None:
    mean_s = estimate_of(*runs_s).mean_s

    assert mean_s is not None
    assert min(runs_s) - 1e-6 <= mean_s <= max(runs_s) + 1e-6


def test_under_a_rate_only_what_may_start_soon_is_held_beside_what_runs() -> None:
    assert prefetch_under_rate(100, None, ahead=2, in_progress=0) == 2
    assert prefetch_under_rate(100, None, ahead=400, in_progress=0) == 100


def test_under_a_rate_the_prefetch_doubles_as_runs_pile_up_and_shrinks_late() -> None:
    grown = [2]
    for in_progress in (2, 4, 8, 40, 100):
        grown.append(prefetch_under_rate(100, grown[-1], ahead=2, in_progress=in_progress))
    assert grown == [2, 4, 8, 16, 42, 100]

    assert prefetch_under_rate(100, 100, ahead=2, in_progress=30) == 100
    assert prefetch_under_rate(100, 100, ahead=2, in_progress=3) == 5


def test_where_deliveries_are_bundles_fewer_of_them_are_taken_ahead() -> None:
    assert deliveries_for(1000, 1.0, 1000) == 1000
    assert deliveries_for(1000, 100.0, 1000) == 10
    assert deliveries_for(100, 128.0, 100) == LEAST_BUNDLES
    assert deliveries_for(1000, 1.0, 10) == 1000


def test_how_many_bundles_are_taken_ahead_does_not_waver_with_what_is_in_them() -> None:
    assert deliveries_for(1000, 60.0, 10) == 10
    assert deliveries_for(1000, 180.0, 10) == 10
    assert deliveries_for(1000, 20.0, 10) == 50


def test_where_single_messages_and_bundles_take_turns_it_does_not_waver() -> None:
    taken = [100]
    for parts in (1.9, 2.1, 1.95, 2.2, 1.8, 2.1, 1.15, 2.0):
        taken.append(deliveries_for(100, parts, taken[-1]))

    assert taken == [100, 100, *[48] * 7]
    assert deliveries_for(100, 1.0, 48) == 100
