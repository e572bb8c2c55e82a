"""How long a failed attempt waits for the next one, and on which rung of the ladder.

Arithmetic over a random number that the caller draws, in [0, 1). Whether there is a next attempt is in `rules.py`;
the ladder's queues are in `broker/topology.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.execution.policy import Backoff


def delay_s(backoff: Backoff, retry: int, rand: float) -> float:
    """The delay before the `retry`-th retry, counted from 1: 0.5 to 1.5 times the nominal one.

    Half of it stays, so that no retry comes at once and later ones tend to wait longer; the rest spreads a crowd that
    failed together over a span as wide as the delay itself; and the mean is what the policy says. The cap applies
    before the jitter: a crowd that has reached the cap would otherwise come back in step.
    """
    try:
        nominal_s = backoff.first_s * float(backoff.factor) ** (retry - 1)
    except OverflowError:
        nominal_s = backoff.cap_s
    return min(nominal_s, backoff.cap_s) * (0.5 + rand)


def pick_rung(delay_s: float, rungs_s: Sequence[float], rand: float) -> float:
    """One of the two rungs next to the wish, each as often as makes the mean delay equal to it.

    `rungs_s` ascends. A wish outside of it gets the first or the last rung.
    """
    above = bisect_right(rungs_s, delay_s)
    if above == 0:
        return rungs_s[0]
    if above == len(rungs_s):
        return rungs_s[-1]
    lower_s, upper_s = rungs_s[above - 1], rungs_s[above]
    return upper_s if rand < (delay_s - lower_s) / (upper_s - lower_s) else lower_s
