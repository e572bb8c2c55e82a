"""A circuit breaker, for a node or for one action on it. Pure: rows and times in, rows out; managers share the rows.

OK, WARNING (some failures in a row), DOWN (too many: nothing is sent for a while), RECOVERING (one trial is sent, and
its end decides). Only what tells about the node counts: no answer, no queue, a crash. An action that raises does not.
"""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec


class Health(enum.StrEnum):
    OK = "OK"
    WARNING = "WARNING"
    DOWN = "DOWN"
    RECOVERING = "RECOVERING"


class Sign(enum.StrEnum):
    """What an attempt says about where it went."""

    OK = "ok"
    FAILED = "failed"
    TRIAL = "trial"  # it was sent to see whether the place has recovered


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    max_failures: int = 3  # in a row; lower gives up sooner, and takes a hiccup for a death
    down_ms: int = 60_000  # longer spares what is down, and leaves what has recovered unused


class Breaker(Protocol):
    """The part of a row that the rules read. Zero: not."""

    @property
    def failures(self) -> int: ...
    @property
    def down_until_ms(self) -> int: ...
    @property
    def trial_ms(self) -> int: ...


class Change(msgspec.Struct, frozen=True):
    failures: int
    down_until_ms: int
    trial_ms: int


CLOSED = Change(0, 0, 0)


def health(breaker: Breaker | None, now_ms: int, settings: BreakerSettings) -> Health:
    """No row: nothing ever failed. A time further ahead than a circuit can be open was written by a clock that has gone
    back since, and is over."""
    if breaker is None or breaker.failures == 0:
        return Health.OK
    if breaker.failures < settings.max_failures:
        return Health.WARNING
    is_open = now_ms < breaker.down_until_ms <= now_ms + 2 * settings.down_ms
    return Health.DOWN if is_open else Health.RECOVERING


def may_send(breaker: Breaker | None, now_ms: int, settings: BreakerSettings) -> bool:
    """While a trial is out, no second one; a trial that nobody answers is over when its circuit would be."""
    state = health(breaker, now_ms, settings)
    if state is not Health.RECOVERING or breaker is None:
        return state is not Health.DOWN
    return not (breaker.trial_ms and 0 <= now_ms - breaker.trial_ms < settings.down_ms)


def after(breaker: Breaker | None, sign: Sign, now_ms: int, settings: BreakerSettings) -> Change:
    """The row as it is after one sign."""
    now = CLOSED if breaker is None else Change(breaker.failures, breaker.down_until_ms, breaker.trial_ms)
    match sign:
        case Sign.OK:
            return CLOSED
        case Sign.TRIAL:
            return Change(now.failures, now.down_until_ms, now_ms)
        case Sign.FAILED:
            failures = now.failures + 1
            is_down = failures >= settings.max_failures
            return Change(failures, now_ms + settings.down_ms if is_down else 0, 0)
