"""Times as the store counts them and as people read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def as_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def as_time_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else as_time(ms)
