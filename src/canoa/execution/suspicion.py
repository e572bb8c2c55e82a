"""What to do with a task that was running when its process ended without a word, where no broker redelivers it.

The same rules as for a redelivery, told from the count alone: up to a count it ran in company, from there on alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.execution import rules

if TYPE_CHECKING:
    from canoa.execution.policy import Policy


def judge(policy: Policy, crashes: int) -> rules.Recount | rules.Poison:
    """`crashes`: the last one included."""
    was_alone = False
    for earlier in range(crashes - 1):
        verdict = _verdict(policy, earlier, was_alone=was_alone)
        if isinstance(verdict, rules.Poison):  # and that could not be written
            return rules.Poison(crashes)
        was_alone = verdict.as_suspect
    return _verdict(policy, crashes - 1, was_alone=was_alone)


def _verdict(policy: Policy, crashes: int, *, was_alone: bool) -> rules.Recount | rules.Poison:
    received = rules.Received(crashes=crashes, redelivered=True, is_suspect=was_alone)
    verdict = rules.on_delivery(policy, received, 0.0)
    assert isinstance(verdict, rules.Recount | rules.Poison)
    return verdict
