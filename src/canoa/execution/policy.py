"""How an action wants to be run: time limit, retries, backoff, crashes.

Values and their checks only. What follows from them is in `rules.py` and `backoff.py`.
"""

from __future__ import annotations

import math

import msgspec

from canoa.errors import SettingError


def _check_number(name: str, value: object, *, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:  # NaN is not either
        raise SettingError(f"{name} is {value!r}; {remedy}")


def _check_count(name: str, value: object, *, at_least: int, remedy: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise SettingError(f"{name} is {value!r}; {remedy}")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before a retry: `first_s`, then `factor` times more each time, up to `cap_s`.

    These are nominal: jitter spreads each delay around them, see `backoff.delay_s`.
    """

    first_s: float = 1.0  # lower heals short hiccups sooner, and presses harder on what is down
    factor: float = 2.0
    cap_s: float = 600.0

    def __post_init__(self) -> None:
        _check_number("backoff.first_s", self.first_s, remedy="use seconds above 0, such as 1.0")
        _check_number("backoff.factor", self.factor, remedy="use 1 (always the same delay) or more, such as 2.0")
        _check_number("backoff.cap_s", self.cap_s, remedy="use seconds above 0, such as 600.0")
        if self.factor < 1:
            raise SettingError(f"backoff.factor is {self.factor!r}; use 1 (always the same delay) or more")
        if self.cap_s < self.first_s:
            raise SettingError(
                f"backoff.cap_s is {self.cap_s!r}, below first_s ({self.first_s!r}); raise the cap or lower the first"
            )


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One action's rules."""

    timeout_s: float | None = 30.0  # of one attempt's run, not of its wait in the queue; None is no limit
    retries: int = 0  # after the first attempt
    backoff: Backoff = Backoff()
    max_crashes: int = 3  # lower dead-letters a deadly message sooner, and bystanders of other crashes with it

    def __post_init__(self) -> None:
        if self.timeout_s is not None:
            _check_number("timeout", self.timeout_s, remedy="use seconds above 0, or None for no limit")
        _check_count("retry", self.retries, at_least=0, remedy="use 0 (no retries) or more")
        _check_count("max_crashes", self.max_crashes, at_least=1, remedy="use 1 (never run it twice) or more")
