"""Retries wait longer each time, never in step, and the ladder keeps their mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker.topology import RUNGS_S
from canoa.execution.backoff import delay_s, pick_rung
from canoa.execution.policy import Backoff

chance = st.floats(0, 1, exclude_max=True)
seconds = st.floats(1e-3, 1e6)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first_s, cap_s = sorted([draw(seconds), draw(seconds)])
    return Backoff(first_s=first_s, factor=draw(st.floats(1, 1e3)), cap_s=cap_s)


@given(backoffs(), st.integers(1, 10_000), chance)
def test_a_delay_is_half_to_one_and_a_half_of_the_nominal_which_is_capped(
    backoff: Backoff, retry: int, rand: float
) -> None:
    delay = delay_s(backoff, retry, rand)

    assert backoff.first_s * 0.5 <= delay <= backoff.cap_s * 1.5


@given(backoffs(), st.integers(1, 500), chance)
def test_with_the_same_chance_a_later_retry_waits_no_less(backoff: Backoff, retry: int, rand: float) -> None:
    assert delay_s(backoff, retry, rand) <= delay_s(backoff, retry + 1, rand)


@pytest.mark.parametrize(
    ("retry", "expected_s"), [(1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (10_000, 600), (10**12, 600)]
)
def test_the_mean_doubles_from_one_second_to_ten_minutes_by_default(retry: int, expected_s: float) -> None:
    assert delay_s(Backoff(), retry, 0.5) == expected_s


@pytest.mark.parametrize("factor", [1e308, 10**400, 2])
def test_no_factor_overflows(factor: float) -> None:
    assert delay_s(Backoff(factor=factor), 10_000, 0.5) == 600


@given(st.floats(0, 10_000), chance)
def test_a_rung_is_a_neighbour_of_the_wish(wish_s: float, rand: float) -> None:
    rung_s = pick_rung(wish_s, RUNGS_S, rand)

    assert rung_s in RUNGS_S
    assert not any(min(rung_s, wish_s) < other_s < max(rung_s, wish_s) for other_s in RUNGS_S)


@given(st.floats(RUNGS_S[0], RUNGS_S[-1]))
def test_the_expected_delay_is_the_wish(wish_s: float) -> None:
    # Over evenly spread chances the mean may miss the expectation by one of them, so by a thousandth of the gap.
    rungs = [pick_rung(wish_s, RUNGS_S, (n + 0.5) / 1000) for n in range(1000)]

    assert sum(rungs) / 1000 == pytest.approx(wish_s, abs=(max(rungs) - min(rungs)) / 1000 + 1e-9, rel=1e-3)


@pytest.mark.parametrize("rand", [0.0, 0.999])
def test_a_wish_on_or_outside_the_ladder_gets_the_nearest_rung(rand: float) -> None:
    assert [pick_rung(rung_s, RUNGS_S, rand) for rung_s in RUNGS_S] == list(RUNGS_S)
    assert pick_rung(0, RUNGS_S, rand) == RUNGS_S[0]
    assert pick_rung(1e9, RUNGS_S, rand) == RUNGS_S[-1]
    assert pick_rung(7, [3.0], rand) == 3.0
