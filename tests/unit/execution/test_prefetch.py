"""Fast actions take many ahead, slow and unknown ones few, and none wavers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.prefetch import FAST_BELOW_S, SLOW_FROM_S, RunTimeEstimate, prefetch_for, prefetch_under_rate


@pytest.mark.parametrize(
    ("concurrency", "mean_run_s", "current", "prefetch"),
    [
        (50, None, None, 100),
        (50, None, 200, 100),
        (50, 0.001, None, 200),
        (50, 0.001, 100, 200),
        (50, 1.0, None, 100),
        (50, 1.0, 200, 100),
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
    assert prefetch_for(concurrency, mean_run_s, current) == prefetch


@given(st.integers(1, 1000), st.none() | st.floats(0, 1e5), st.none() | st.integers(1, 2000))
def test_it_is_one_of_two_and_asking_again_changes_nothing(
    concurrency: int, mean_run_s: float | None, current: int | None
) -> None:
    prefetch = prefetch_for(concurrency, mean_run_s, current)

    assert prefetch in (2 * concurrency, max(200, 2 * concurrency))
    assert prefetch_for(concurrency, mean_run_s, prefetch) == prefetch


@given(st.integers(1, 99), st.lists(st.floats(FAST_BELOW_S, SLOW_FROM_S, exclude_max=True)), st.booleans())
def test_a_mean_between_the_bounds_never_changes_it(concurrency: int, means_s: list[float], is_fast: bool) -> None:
    prefetch = start = 200 if is_fast else 2 * concurrency

    for mean_s in means_s:
        prefetch = prefetch_for(concurrency, mean_s, prefetch)

    assert prefetch == start


def estimate_of(*runs_s: float) -> RunTimeEstimate:
    estimate = RunTimeEstimate()
    for run_s in runs_s:
        estimate.add(run_s)
    return estimate


def test_a_few_runs_say_nothing_yet() -> None:
    assert estimate_of(*[0.001] * 19).mean_s is None
    assert estimate_of(*[0.001] * 20).mean_s == pytest.approx(0.001)


def test_one_slow_run_makes_a_fast_action_slow_at_once_and_many_fast_ones_make_it_fast_again() -> None:
    estimate = estimate_of(*[0.001] * 1000, 1.0)
    assert prefetch_for(10, estimate.mean_s, 200) == 20

    for _ in range(100):
        estimate.add(0.001)
    assert prefetch_for(10, estimate.mean_s, 20) == 200


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
