"""How many deliveries a worker takes ahead of its work.

Arithmetic over how long runs take. The consumer that is told the number lives in `worker/`.
"""

from __future__ import annotations

import msgspec

FAST_BELOW_S = 0.005
SLOW_FROM_S = 0.010
"""Between the two an action stays what it was: a mean that wavers around one bound would change it for ever."""

FAST_PREFETCH = 200
"""Bridges a round trip of 10 ms at 20,000 runs per second. At 5 ms a run, one after the other, the last of them waits
for a second while another worker may be idle: hence only for fast actions."""


def prefetch_for(concurrency: int, mean_run_s: float | None, current: int | None) -> int:
    """The prefetch for an action whose runs take `mean_run_s` (None: not known yet) and that now has `current`.

    Twice the concurrency hides one round trip and leaves the rest to other workers. Slow actions never hold more, since
    RabbitMQ closes channels that hold a message for 30 minutes.
    """
    slow = 2 * concurrency
    fast = max(FAST_PREFETCH, slow)
    if mean_run_s is None:
        return slow
    is_fast_now = current is not None and current > slow
    return fast if mean_run_s < (SLOW_FROM_S if is_fast_now else FAST_BELOW_S) else slow


def prefetch_under_rate(normal: int, current: int | None, *, ahead: int, in_progress: int) -> int:
    """The same for an action under a rate, of which `in_progress` run: `ahead` more may start soon, and the rest is
    better left to others. It grows by doubling and shrinks late, since every change costs a consumer's restart.
    """
    wanted = min(normal, ahead + in_progress)
    if current is None or 4 * wanted < current:
        return wanted
    return current if wanted <= current else min(normal, max(wanted, 2 * current))


_WEIGHT = 0.05  # of the newest run; remembers about the last 20
_ENOUGH_RUNS = 20


class RunTimeEstimate(msgspec.Struct, gc=False):
    """A moving mean of run times, for one action in one worker.

    One long run among short ones lifts it at once, and it takes dozens of short ones to come down: it errs on the side
    that holds fewer messages.
    """

    runs: int = 0
    moving_mean_s: float = 0.0

    def add(self, run_s: float) -> None:
        self.runs += 1
        # A plain mean first, so that the very first run does not weigh for long.
        self.moving_mean_s += (run_s - self.moving_mean_s) * max(_WEIGHT, 1 / self.runs)

    @property
    def mean_s(self) -> float | None:
        """None until there were enough runs to say."""
        return self.moving_mean_s if self.runs >= _ENOUGH_RUNS else None
