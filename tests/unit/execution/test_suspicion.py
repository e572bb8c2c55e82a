"""A task that was running when its process ended is treated as a redelivered one."""

from __future__ import annotations

import pytest

from canoa.execution import rules
from canoa.execution.policy import Policy
from canoa.execution.suspicion import judge


@pytest.mark.parametrize(
    ("max_crashes", "verdicts"),
    [
        (1, ["poison", "poison"]),
        (2, ["company", "alone", "poison"]),
        (3, ["company", "alone", "poison", "poison", "poison"]),
        (5, ["company", "company", "company", "alone", "poison"]),
    ],
)
def test_it_runs_in_company_then_alone_then_not_any_more(max_crashes: int, verdicts: list[str]) -> None:
    policy = Policy(max_crashes=max_crashes)

    assert [_named(judge(policy, crashes)) for crashes in range(1, len(verdicts) + 1)] == verdicts


def _named(verdict: rules.Recount | rules.Poison) -> str:
    if isinstance(verdict, rules.Poison):
        return "poison"
    return "alone" if verdict.as_suspect else "company"
