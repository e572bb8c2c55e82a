"""A policy that cannot work is refused when it is written, with the value and the remedy."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canoa.errors import SettingError
from canoa.execution.policy import Backoff, Policy


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan, math.inf, "5", True])
def test_a_timeout_is_a_time_or_none(timeout_s: Any) -> None:
    with pytest.raises(SettingError, match=rf"timeout is {timeout_s!r}; use .* None"):
        Policy(timeout_s=timeout_s)


@pytest.mark.parametrize("retries", [-1, 1.5, "3", True, math.nan])
def test_retries_are_counted(retries: Any) -> None:
    with pytest.raises(SettingError, match=rf"retry is {retries!r}; use 0"):
        Policy(retries=retries)


@pytest.mark.parametrize("max_crashes", [0, -1, 2.0, None])
def test_one_crash_is_the_least_to_allow(max_crashes: Any) -> None:
    with pytest.raises(SettingError, match=rf"max_crashes is {max_crashes!r}; use 1"):
        Policy(max_crashes=max_crashes)


@pytest.mark.parametrize("field", ["first_s", "factor", "cap_s"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", None])
def test_backoff_is_made_of_positive_numbers(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"backoff\.{field} is {value!r}; use"):
        Backoff(**{field: value})


def test_backoff_does_not_shrink_and_its_cap_is_not_below_its_start() -> None:
    with pytest.raises(SettingError, match=r"factor is 0\.5"):
        Backoff(factor=0.5)
    with pytest.raises(SettingError, match=r"cap_s is 5.*first_s \(10\)"):
        Backoff(first_s=10, cap_s=5)


def test_the_widest_values_are_allowed() -> None:
    assert Policy(timeout_s=None, retries=10**9, max_crashes=1, backoff=Backoff(first_s=1, factor=1, cap_s=1)).retries
    assert Policy(timeout_s=10**400).timeout_s
