"""Whether the actions that a plan names as compensations can take what these get, as far as they are defined in this
program. Of others only their names are known; whether anybody offers them, managers know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.errors import PlanRefused, WrongUse
from canoa.execution.plan_inputs import COMPENSATION_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.action import Action
    from canoa.execution.plan import Plan
    from canoa.vocabulary import ActionName


def check_compensation(action: Action[..., Any, Any]) -> None:
    """Raises `WrongUse`."""
    if not action.signature.takes_object(COMPENSATION_KEYS):
        raise WrongUse(
            f"{action.name} cannot compensate a step: it takes {action.signature.describe()}; "
            f"let it take `input` and `output` (what the step got and gave), or both as one parameter"
        )


def check_compensations(plan: Plan, actions: Mapping[ActionName, Action[..., Any, Any]]) -> None:
    """Of those that are among `actions`. Raises `PlanRefused`."""
    for step in plan.steps:
        action = None if step.compensate is None else actions.get(step.compensate)
        if action is None:
            continue
        try:
            check_compensation(action)
        except WrongUse as exc:
            raise PlanRefused(f"plan {plan.name!r}, step {step.name!r}: {exc}", step=step.name) from exc
