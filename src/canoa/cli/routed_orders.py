"""What `canoa submit` hands to the managers: a plan file, a registered plan, or an action that is to be routed."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.cli.plans import read_plan
from canoa.client.door import RoutedOrder
from canoa.errors import ArgumentsRefused, ManagersGone, NobodyManages, Undecodable, UnknownPlan, WrongUse
from canoa.urn import TASK_PREFIX, task_name
from canoa.wire.codec import ANY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.client.door import Order
    from canoa.recorder.views import SubmitOptions

PLAN_FILES: Final = frozenset({".yaml", ".yml", ".json"})


def is_plan(name: str) -> bool:
    """A plan file, a URN, or a name without a dot, which no action has."""
    return is_plan_file(name) or name.startswith(TASK_PREFIX) or "." not in name


def is_plan_file(name: str) -> bool:
    return Path(name).suffix.lower() in PLAN_FILES


def of_plan(name: str, text: str, options: SubmitOptions) -> tuple[str, RoutedOrder]:
    """The plan's name, and the order."""
    input = _json(text)
    if not is_plan_file(name):
        return task_name(name), RoutedOrder(plan=task_name(name), input=input, options=options)
    from canoa.execution.plan_writing import document

    plan = read_plan(name)
    return plan.name, RoutedOrder(plan=document(plan), input=input, options=options)


def of_action(order: Order) -> RoutedOrder:
    return RoutedOrder(action=order.action, input=order.arguments, options=order.options)


@contextmanager
def bare_names_told(name: str) -> Iterator[None]:
    """A name without a dot may be a plan's, or an action's whose app was left out."""
    try:
        yield
    except (UnknownPlan, NobodyManages) as exc:
        if "." in name or name.startswith(TASK_PREFIX) or isinstance(exc, ManagersGone):  # who would know the plan
            raise
        raise WrongUse(f"{name!r:.100} is not an action's name, which is <app>.<action>; as a plan's: {exc}") from exc


def _json(text: str) -> msgspec.Raw:
    body = (sys.stdin.read() if text == "-" else text).encode()
    try:
        ANY.decode(body, None)
    except Undecodable as exc:
        raise ArgumentsRefused(f"the input is not JSON ({exc.__cause__ or exc}): {text[:80]}") from exc
    return msgspec.Raw(body)
