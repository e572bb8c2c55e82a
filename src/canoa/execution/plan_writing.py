"""A plan as a plan file says it: what `plan_reading.py` reads, and people too."""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from canoa.execution.plan import FromInput, FromStep, Given, Plan, Source, Step


def document(plan: Plan) -> dict[str, Any]:
    """Reading it again gives the same plan."""
    written: dict[str, Any] = {"plan": plan.name, "steps": {each.name: _step(each) for each in plan.steps}}
    return written if plan.output is None else {**written, "output": plan.output}


def _step(step: Step) -> dict[str, Any]:
    told = [each.step for each in (step.arguments or {}).values() if isinstance(each, FromStep)]
    after = [name for name in step.after if name not in told]
    known: dict[str, Any] = {
        "action": step.action,
        "with": None if step.arguments is None else {name: _source(each) for name, each in step.arguments.items()},
        "after": after or None,
        "timeout": step.timeout_s,
        "retry": step.retries,
        "placement": None if step.placement is None else msgspec.json.decode(msgspec.json.encode(step.placement)),
        "compensate": step.compensate,
    }
    return {name: value for name, value in known.items() if value is not None}


def _source(source: Source) -> Any:
    match source:
        case FromInput(key=key):
            return "$input" if key is None else f"$input.{key}"
        case FromStep(step=step, key=key):
            return f"${step}" if key is None else f"${step}.{key}"
        case Given(value=value):
            return _literal(value)
        case _:
            assert_never(source)


def _literal(value: Any) -> Any:
    """What looks like a reference is written with one more `$`."""
    match value:
        case str() if value.startswith("$"):
            return f"${value}"
        case list() | tuple():
            return [_literal(each) for each in value]
        case dict():
            return {name: _literal(each) for name, each in value.items()}
        case _:
            return value
