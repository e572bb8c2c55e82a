"""The arithmetic of a rate: when the next starts may be (GCRA, the generic cell rate algorithm).

Pure: who keeps `next_ms`, the theoretical arrival time, is the store or the worker.
"""

from __future__ import annotations

from typing import Final

APART_MS: Final = 60_000
"""How far the clocks of those who share a rate may be apart. Longer waits longer for a clock that was put back."""


def reserved(
    next_ms: float, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int
) -> tuple[float, float] | None:
    """When the first of `count` may start, and the new `next_ms`; None when that is later than `within_ms` from now.

    After a pause the first time lies in the past, by what the burst allows: the k-th start may be at
    `max(now, first + k * per_ms)`. No window of `t` ms then sees more than `burst + t / per_ms` starts.

    A `next_ms` that nobody can have reached who asked like this, not even twice in a row, comes from a clock that has
    been put back since: it counts for nothing.
    """
    furthest_ms = now_ms + 2 * (within_ms + burst * per_ms) + APART_MS
    arrival_ms = max(next_ms, float(now_ms)) if next_ms <= furthest_ms else float(now_ms)
    first_ms = max(0.0, arrival_ms - (burst - 1) * per_ms)
    if first_ms > now_ms + within_ms:
        return None
    return first_ms, arrival_ms + count * per_ms
