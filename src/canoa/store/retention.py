"""What is forgotten, in which order, and from when on. Pure: the adapters put it into their SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.execution.outcome import Outcome
from canoa.store.ledger import OPEN

if TYPE_CHECKING:
    from canoa.store.port import Retention

QUIET_MS: Final = 86_400_000
"""For how long after the last thing that happened tasks and letters are forgotten. A clock that jumped further deletes
nothing until something happens by it; shorter would let a store that is used once a day keep everything."""

PLAN_MS: Final = 86_400_000
"""How long a plan that nobody uses stays. Longer than `outlines.USED_EVERY_MS`: whoever has just begun a task with it
must not lose it."""

TOKEN_MS: Final = 30 * 86_400_000
"""How long a token that was revoked or has expired stays in the list: whoever wonders weeks later why a program is
refused shall find it there."""

_PLAN_IS_USED: Final = """
EXISTS (SELECT 1 FROM tasks WHERE tasks.plan = plans.id) OR id IN (SELECT plan FROM plan_names)
"""

# Each of them is the end of an index.
_SUBMITTED: Final = " ".join(
    f"UNION ALL SELECT max(submitted_ms) FROM tasks WHERE standing = '{standing}'"
    for standing in (*sorted(OPEN), *(outcome.value for outcome in Outcome))
)
NEWEST: Final = f"""
SELECT max(at_ms) FROM (
  SELECT max(dead_ms) AS at_ms FROM letters
  UNION ALL SELECT max(ended_ms) FROM tasks WHERE ended_ms IS NOT NULL
  {_SUBMITTED}
) AS happened
"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of `table` with `time` before `before_ms`, the oldest first: so they are found by the index of that time."""

    table: str
    time: str
    before_ms: int
    emptied: str | None = None  # only this column, and only where it is not empty yet; None: the whole row
    unless: str = ""  # rows of which this is true stay
    parts: str | None = None  # the table whose rows go with them, by `task_id`

    @property
    def verb(self) -> str:
        return f"DELETE FROM {self.table}" if self.emptied is None else f"UPDATE {self.table} SET {self.emptied} = NULL"

    @property
    def order(self) -> str:
        return f"ORDER BY {self.time}"

    def condition(self, before: str) -> str:
        """`before`: the adapter's name for the parameter."""
        is_filled = f" AND {self.emptied} IS NOT NULL" if self.emptied is not None else ""
        is_free = f" AND NOT ({self.unless})" if self.unless else ""
        return f"{self.time} < {before}{is_filled}{is_free}"


def steps(retention: Retention, *, now_ms: int, newest_ms: int | None) -> list[Step]:
    """What the retention names, and tokens that open nothing, unless nothing happened for long (`newest_ms`: what
    `NEWEST` found); then what says nothing any more: limits, slots, plans without a name or a task."""

    def before_ms(kept_s: float) -> int:
        return now_ms - round(kept_s * 1000)

    kept = [
        Step(table="tasks", time="ended_ms", before_ms=before_ms(retention.task_s), parts="steps"),
        Step(table="tasks", time="ended_ms", before_ms=before_ms(retention.payload_s), emptied="message"),
        Step(table="letters", time="dead_ms", before_ms=before_ms(retention.letter_s)),
        Step(table="tokens", time="revoked_ms", before_ms=now_ms - TOKEN_MS),
        Step(table="tokens", time="expires_ms", before_ms=now_ms - TOKEN_MS),
    ]
    spent = [
        Step(table="limits", time="next_ms", before_ms=now_ms),
        Step(table="slots", time="expires_ms", before_ms=now_ms),
        Step(table="plans", time="used_ms", before_ms=now_ms - PLAN_MS, unless=_PLAN_IS_USED),
    ]
    is_quiet = newest_ms is None or now_ms > newest_ms + QUIET_MS
    return spent if is_quiet else kept + spent
