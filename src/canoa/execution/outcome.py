"""How one delivery of a task went: the label of metrics and logs, and the kind of a failure."""

from __future__ import annotations

import enum
from typing import Final


class Outcome(enum.StrEnum):
    OK = "ok"
    FAILED = "failed"  # the action raised, and no retry is left
    TIMED_OUT = "timed_out"  # it ran longer than its timeout, and no retry is left
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # it did not start before its deadline
    REFUSED = "refused"  # arguments, encoding, size: a retry would end the same
    POISONED = "poisoned"  # it ended its worker too often
    RETRIED = "retried"  # it failed, and waits for its next attempt


OK: Final = Outcome.OK
"""For what is asked of every step: Python 3.11 takes ten times as long to find a member in its class."""
