"""Whether the actions of a plan take what its steps give them by parameter, as far as they are defined in this program.

What a step gets whole, and what the values are that other steps give, shows when it runs; of actions of other programs
only the names are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.errors import ArgumentsRefused, PlanRefused
from canoa.execution.plan import Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.action import Action
    from canoa.execution.plan import Plan, Source
    from canoa.signature import Signature
    from canoa.vocabulary import ActionName


def check_arguments(plan: Plan, actions: Mapping[ActionName, Action[..., Any, Any]]) -> None:
    """Of those that are among `actions`. Raises `PlanRefused`."""
    for step in plan.steps:
        action = actions.get(step.action)
        if action is None or step.arguments is None:
            continue
        try:
            _check(action.signature, step.arguments)
        except ArgumentsRefused as exc:
            raise PlanRefused(f"plan {plan.name!r}, step {step.name!r}: {exc}", step=step.name) from exc


def _check(signature: Signature, arguments: Mapping[str, Source]) -> None:
    signature.check_object(arguments.keys())
    if not arguments.keys() <= set(signature.names()):
        return  # they are one object, for the one parameter
    for name, source in arguments.items():
        if isinstance(source, Given):
            signature.as_sent(name, source.value)
