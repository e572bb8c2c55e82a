"""Times as the store counts them and as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from canoa.clock import now_ms

__all__ = ["as_time", "as_time_or_none", "now_ms"]

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_000
"""Where the calendar begins and ends, the years 1 and 9999. A message may claim more."""


@lru_cache(64)  # what comes together has a time or two in common
def as_time(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, _FIRST_MS), _LAST_MS) / 1000, UTC)


def as_time_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else as_time(ms)
