"""A plan: which actions a task runs, which of them wait for which, and what each gets.

Values only, as they are stored and travel; a plan never changes. Checks are in `plan_checks.py`, what a step gets in
`plan_inputs.py`, what happens when in `steps.py`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from canoa.execution.placement import Placement
from canoa.vocabulary import ActionName


class FromInput(msgspec.Struct, frozen=True, tag="input"):
    """What the task was submitted with, or one key of it."""

    key: str | None = None


class FromStep(msgspec.Struct, frozen=True, tag="step"):
    """What another step gave, or one key of it."""

    step: str
    key: str | None = None


class Given(msgspec.Struct, frozen=True, tag="value"):
    """Written into the plan."""

    value: Any


Source: TypeAlias = FromInput | FromStep | Given


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of a plan. Without `arguments` it gets what it waits for: the task's input where that is nothing, the
    one result where it is one, and an object of results by step where there are several."""

    name: str
    action: ActionName
    after: tuple[str, ...] = ()  # also those that `arguments` name
    arguments: dict[str, Source] | None = None  # by parameter
    timeout_s: float | None = None  # of one attempt; None: as its node says
    retries: int | None = None  # likewise
    placement: Placement | None = None  # None: as the action's nodes say
    compensate: ActionName | None = None  # undoes what it did, should the task not end well


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps in an order in which none comes before what it waits for. A plan of one step is a single action."""

    name: str  # what follows `urn:sapparchi:Task:`; of a single action, the action's name
    steps: tuple[Step, ...]
    output: str | None = None  # the step whose result is the task's; None: of those that nobody waits for
    site: str = ""  # of a task's: where its caller stands, and so the input of steps that get no other step's result


def seen_from(plan: Plan, site: str) -> Plan:
    """The plan of a task whose caller stands there. In the plan, since that is at hand whenever a node is chosen."""
    return plan if plan.site == site else msgspec.structs.replace(plan, site=site)


def actions_of(plan: Plan) -> list[ActionName]:
    """All that it may run, compensations too, each once."""
    named = [name for step in plan.steps for name in (step.action, step.compensate) if name is not None]
    return list(dict.fromkeys(named))
