"""When work leaves a layer that has too much of it, and when it comes back: without flapping. Pure: times come in.

Too long a queue sends on only what would make it longer. Answers that take too long send on everything, for a while; if
it is as slow as before after that, for twice as long.
"""

from __future__ import annotations

from typing import Final

import msgspec

HOLD_MS: Final = 10_000
MAX_HOLD_MS: Final = 300_000
"""How long a slow layer gets nothing. Longer spares what is slow, and leaves what has recovered unused."""

RELAXED: Final = 0.75
"""Of what was too much: from there on it is not any more."""

SOON: Final = 3
"""Times as long as it was held: whoever is slow again within that never was well."""


class Tide(msgspec.Struct, frozen=True):
    """Of one action in one layer."""

    is_full: bool = False  # its queue
    is_slow: bool = False
    since_ms: int = 0  # when it became slow, or was last thought to be well again
    hold_ms: int = HOLD_MS

    @property
    def is_out(self) -> bool:
        """The next layer gets what comes."""
        return self.is_full or self.is_slow


CALM: Final = Tide()


def filled(tide: Tide, queue: float, limit: float) -> Tide:
    is_full = queue > (limit * RELAXED if tide.is_full else limit)
    return tide if is_full == tide.is_full else msgspec.structs.replace(tide, is_full=is_full)


def slowed(tide: Tide, p95_ms: float | None, limit_ms: float, now_ms: int) -> Tide:
    """`p95_ms` None: too few answers came lately to tell, such as while it gets nothing."""
    after_ms = now_ms - tide.since_ms
    if tide.is_slow:
        is_over = after_ms < 0 or after_ms >= tide.hold_ms  # a clock that went back holds nobody for ever
        if is_over and (p95_ms is None or p95_ms <= limit_ms * RELAXED):
            return msgspec.structs.replace(tide, is_slow=False, since_ms=now_ms)
        return tide
    if p95_ms is None or p95_ms <= limit_ms:
        return tide
    is_again = tide.since_ms > 0 and 0 <= after_ms < SOON * tide.hold_ms
    hold_ms = min(MAX_HOLD_MS, 2 * tide.hold_ms) if is_again else HOLD_MS
    return msgspec.structs.replace(tide, is_slow=True, since_ms=now_ms, hold_ms=hold_ms)
