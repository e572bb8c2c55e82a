"""How an action wants to be run: time limit, retries, backoff, crashes, rate, concurrency, choice of node.

Values and their checks only. What follows from them is in `rules.py`, `backoff.py` and `limits.py`.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import msgspec

from canoa.errors import SettingError
from canoa.execution import limits
from canoa.execution.placement import Placement
from canoa.vocabulary import Routing

Scope: TypeAlias = Literal["global", "worker"]
"""Whose starts a limit counts: those of all workers, or of each worker by itself."""


def _check_number(name: str, value: object, *, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:  # NaN is not either
        raise SettingError(f"{name} is {value!r}; {remedy}")


def _check_count(name: str, value: object, *, at_least: int, remedy: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise SettingError(f"{name} is {value!r}; {remedy}")


def _check_is(name: str, value: object, kind: type, *, remedy: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise SettingError(f"{name} is {value!r:.40}; {remedy}")


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


def _check_scope(scope: object) -> None:
    if scope not in get_args(Scope):
        raise SettingError(f"scope={scope!r:.40}: use 'global' (all workers together) or 'worker' (each by itself)")


class _Text(msgspec.Struct, frozen=True):
    """Its only field may be positional; those of the structs below may not."""

    text: str


class Rate(_Text, frozen=True, kw_only=True):
    """How often an action may start: `Rate("100/m")`, in `/s`, `/m`, `/h` or `/d`, evenly spaced."""

    burst: int = 1  # how many may start at once after a pause; higher answers sooner, and presses harder
    scope: Scope = "global"

    def __post_init__(self) -> None:
        limits.per_ms(self.text)
        _check_count("rate.burst", self.burst, at_least=1, remedy="use 1 (evenly spaced) or more")
        _check_scope(self.scope)

    @property
    def per_ms(self) -> float:
        return limits.per_ms(self.text)


class Concurrency(_Text, frozen=True, kw_only=True):
    """How many tasks with the same key may run at once: `Concurrency("customer:{id}", limit=3)`.

    The key names parameters of the action in braces. Actions of one app that use the same key share its places.
    """

    limit: int = 1
    scope: Scope = "global"

    def __post_init__(self) -> None:
        limits.fields_of(self.text)
        _check_count("concurrency.limit", self.limit, at_least=1, remedy="use 1 (one after the other) or more")
        _check_scope(self.scope)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One action's rules."""

    timeout_s: float | None = 30.0  # of one attempt's run, not of its wait in the queue; None is no limit
    retries: int = 0  # after the first attempt
    backoff: Backoff = Backoff()
    max_crashes: int = 3  # lower dead-letters a deadly message sooner, and bystanders of other crashes with it
    rate: Rate | None = None
    concurrency: Concurrency | None = None
    routing: Routing | None = None  # among nodes, where a manager chooses; None: as the manager does
    placement: Placement | None = None  # which nodes a manager may choose; None: all

    def __post_init__(self) -> None:
        if self.timeout_s is not None:
            _check_number("timeout", self.timeout_s, remedy="use seconds above 0, or None for no limit")
        _check_count("retry", self.retries, at_least=0, remedy="use 0 (no retries) or more")
        _check_is("rate", self.rate, Rate, remedy="use text such as '100/m', or Rate('100/m', burst=10)")
        _check_is("concurrency", self.concurrency, Concurrency, remedy="use text, or Concurrency('…', limit=3)")
        _check_is("placement", self.placement, Placement, remedy="use Placement(layers=(Layer.EDGE, Layer.FOG))")
        _check_count("max_crashes", self.max_crashes, at_least=1, remedy="use 1 (never run it twice) or more")
