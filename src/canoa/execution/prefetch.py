"""How many deliveries a worker takes ahead of its work.

Arithmetic over how long runs take. The consumer that is told the number lives in `worker/`.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec


class Tier(NamedTuple):
    """Actions whose runs take less than `below_s` get this prefetch, and keep it until they take `until_s`: a mean that
    wavers around one bound would change it for ever."""

    prefetch: int
    below_s: float
    until_s: float


TIERS: Final = (Tier(1000, below_s=0.0002, until_s=0.0004), Tier(200, below_s=0.005, until_s=0.010))
"""200 bridge a round trip of 10 ms at 20,000 runs per second. At 5 ms a run, one after the other, the last of them
waits for a second while another worker may be idle: hence only for fast actions. The fastest end in batches, and while
one is acknowledged the broker needs another to send: 1,000 drained a tenth to a quarter more per second than 200."""

HELD_BYTES: Final = 32 * 1024 * 1024
"""What a tier may hold ahead, about: large messages fill a worker's memory long before they fill its time."""

LEAST_BUNDLES: Final = 4
"""Two hide a round trip; the others are for those that bring little."""

ALONE_PARTS: Final = 1.1
"""Deliveries that bring fewer on average are single messages, but for a few."""


def prefetch_for(concurrency: int, estimate: RunEstimate, current: int | None) -> int:
    """The prefetch for an action that now has `current`.

    Twice the concurrency hides one round trip and leaves the rest to other workers. Slow actions never hold more, since
    RabbitMQ closes channels that hold a message for 30 minutes.
    """
    slow = 2 * concurrency
    mean_s = estimate.mean_s
    if mean_s is None:
        return slow
    for tier in TIERS:
        has_it = current is not None and current >= max(tier.prefetch, slow + 1)
        most_s, most_bytes = (tier.until_s, 2 * HELD_BYTES) if has_it else (tier.below_s, HELD_BYTES)
        if mean_s < most_s and tier.prefetch * estimate.mean_bytes <= most_bytes:
            return max(tier.prefetch, slow)
    return slow


def deliveries_for(prefetch: int, parts: float, current: int) -> int:
    """How many deliveries bring about `prefetch` things to run, where one brings `parts` of them; `current` is what it
    is now. It changes where that is far off: every change costs a consumer's restart."""
    if parts < ALONE_PARTS:
        return prefetch
    wanted = max(LEAST_BUNDLES, math.ceil(prefetch / parts))
    return current if wanted <= 2 * current and current <= 2 * wanted else wanted


def prefetch_under_rate(normal: int, current: int | None, *, ahead: int, in_progress: int) -> int:
    """The same for an action under a rate, of which `in_progress` run: `ahead` more may start soon, and the rest is
    better left to others. It grows by doubling and shrinks late, since every change costs a consumer's restart.
    """
    wanted = min(normal, ahead + in_progress)
    if current is None or 4 * wanted < current:
        return wanted
    return current if wanted <= current else min(normal, max(wanted, 2 * current))


_ENOUGH_RUNS: Final = 20
_WEIGHT: Final = 1 / _ENOUGH_RUNS  # of the newest run


class RunEstimate(msgspec.Struct, gc=False):
    """Moving means of what runs take, for one action in one worker.

    One long run among short ones lifts it at once, and it takes dozens of short ones to come down: it errs on the side
    that holds fewer messages.
    """

    runs: int = 0
    moving_mean_s: float = 0.0
    mean_bytes: float = 0.0

    def add(self, run_s: float, body_bytes: int) -> None:
        self.runs += 1
        # A plain mean first, so that the very first run does not weigh for long.
        weight = _WEIGHT if self.runs > _ENOUGH_RUNS else 1 / self.runs
        self.moving_mean_s += (run_s - self.moving_mean_s) * weight
        self.mean_bytes += (body_bytes - self.mean_bytes) * weight

    @property
    def mean_s(self) -> float | None:
        """None until there were enough runs to say."""
        return self.moving_mean_s if self.runs >= _ENOUGH_RUNS else None
