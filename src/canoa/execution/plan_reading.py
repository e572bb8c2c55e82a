"""Plans as others write them: a request's list of actions or dependencies, and the form of plan files.

Pure, and for input that nobody has checked: what comes out can run, anything else is a `PlanRefused`. YAML and JSON
become documents in `plan_files.py`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import PlanRefused, SettingError
from canoa.execution.placement import read_placement
from canoa.execution.plan import FromInput, FromStep, Given, Plan, Source, Step
from canoa.execution.plan_checks import MAX_STEPS, checked
from canoa.urn import ACTION_PREFIX
from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.wire.sapparchi import PlannedStep

INPUT: Final = "input"
MAX_STEP_CHARS: Final = 80

_PLAN_KEYS: Final = ("plan", "steps", "output")
_STEP_KEYS: Final = ("action", "with", "after", "timeout", "retry", "placement", "compensate")

# --- Of a request ---------------------------------------------------------------------------------------


def from_actions(task_id: str, actions: Sequence[str]) -> Plan:
    """Each step gets what the one before it gave; the first, the task's input. Without a `task_id`, the task is named
    after its last action."""
    if not 0 < len(actions) <= MAX_STEPS:
        raise PlanRefused(f"a task of {len(actions):,} actions cannot run; give it 1 to {MAX_STEPS:,}")
    names = _unique(each.rpartition(".")[2][:MAX_STEP_CHARS] for each in actions)
    before: list[tuple[str, ...]] = [(), *((name,) for name in names[:-1])]
    steps = [
        Step(name=name, action=ActionName(action), after=after)
        for name, action, after in zip(names, actions, before, strict=True)
    ]
    return checked(Plan(name=task_id or actions[-1].removeprefix(ACTION_PREFIX), steps=tuple(steps)))


def from_task_plan(task_id: str, planned: Sequence[PlannedStep]) -> Plan:
    """Steps with their dependencies, as published."""
    if not task_id:
        raise PlanRefused("a task with a task_plan needs a task_id, such as urn:sapparchi:Task:power-factor")
    steps = [Step(name=each.step, action=ActionName(each.action), after=tuple(each.after)) for each in planned]
    return checked(Plan(name=task_id, steps=tuple(steps)))


def _unique(names: Iterable[str]) -> list[str]:
    """`fetch`, `fetch-2`, `fetch-3`: one action may be there twice."""
    times: dict[str, int] = {}
    taken: dict[str, None] = {}
    for name in names:
        free = name
        while free in taken:
            times[name] = times.get(name, 1) + 1
            ending = f"-{times[name]}"
            free = name[: MAX_STEP_CHARS - len(ending)] + ending
        taken[free] = None
    return list(taken)


# --- Of a document --------------------------------------------------------------------------------------


def plan_from_document(document: object) -> Plan:
    """What a plan file says, as plain values:

        plan: power-factor
        steps:
          fetch: {action: continuum.fetch_data, with: {url: $input.url}, compensate: continuum.drop_data}
          pf: {action: continuum.power_factor, with: {data: $fetch}, timeout: 5, retry: 2}
          tell: {action: continuum.tell, after: [pf], placement: {layers: [EDGE, FOG]}}
        output: pf

    Only `plan`, `steps` and each `action` must be there; a step that is a text is its action.
    """
    fields = _object("a plan", document, _PLAN_KEYS)
    steps = fields.get("steps")
    if not isinstance(steps, dict):
        raise PlanRefused("a plan needs `steps:`, an object of steps by name, such as fetch: {action: shop.fetch}")
    output = fields.get("output")
    return checked(
        Plan(
            name=_text("`plan:`, its name,", fields.get("plan")),
            steps=tuple(_step(name, step) for name, step in steps.items()),
            output=None if output is None else _text("`output:`, a step's name,", output).removeprefix("$"),
        )
    )


def _step(name: object, document: object) -> Step:
    if not isinstance(name, str) or name == INPUT:
        raise PlanRefused(f"a step cannot be named {name!r:.100}; use another text (`$input` is the task's input)")
    try:
        fields = _object("it", {"action": document} if isinstance(document, str) else document, _STEP_KEYS)
        return Step(
            name=name,
            action=ActionName(_text("`action:`", fields.get("action"))),
            after=_after(fields.get("after")),
            arguments=_arguments(fields.get("with")),
            timeout_s=_number("timeout", fields.get("timeout")),
            retries=_whole_number("retry", fields.get("retry")),
            placement=None if fields.get("placement") is None else read_placement(fields["placement"]),
            compensate=_compensation(fields.get("compensate")),
        )
    except (PlanRefused, SettingError) as exc:
        raise PlanRefused(f"step {name!r:.100}: {exc}", step=name) from exc


def _after(value: object) -> tuple[str, ...]:
    names = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise PlanRefused(f"`after:` is {value!r:.60}; write the names of steps, such as [fetch]")
    return tuple(_text("`after:`", each).removeprefix("$") for each in names)


def _arguments(value: object) -> dict[str, Source] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise PlanRefused(
            f"`with:` is {value!r:.60}; write an object of values by parameter, such as {{data: $fetch}}, "
            f"or only `after:` for a step that takes the whole result of another"
        )
    return {_text("a parameter in `with:`", name): _source(source) for name, source in value.items()}


def _compensation(value: object) -> ActionName | None:
    if value is not None and not isinstance(value, str):
        raise PlanRefused(
            f"`compensate:` is {value!r:.60}; write the name of an action, such as shop.refund, and nothing else: "
            f"its limits are the action's own, and it has no compensation itself"
        )
    return None if value is None else ActionName(value)


def _source(value: object) -> Source:
    if not isinstance(value, str) or not value.startswith("$"):
        return Given(_literal(value))
    if value.startswith("$$"):
        return Given(value[1:])
    name, dot, key = value[1:].partition(".")
    if not name or (dot and not key):
        raise PlanRefused(
            f"{value!r:.100} refers to nothing; write $step, $step.key, $input or $input.key, and $$ for a plain $"
        )
    return FromInput(key if dot else None) if name == INPUT else FromStep(name, key if dot else None)


def _literal(value: object) -> object:
    """Inside lists and objects nothing is filled in: a reference there would be taken for text, and nobody told."""
    match value:
        case list():
            return [_literal(each) for each in value]
        case dict():
            return {key: _literal(each) for key, each in value.items()}
        case str() if value.startswith("$$"):
            return value[1:]
        case str() if value.startswith("$"):
            raise PlanRefused(
                f"{value!r:.100} stands inside a list or an object; give it to a parameter of its own, "
                f"or write $$ for a plain $"
            )
        case _:
            return value


# --- Fields ---------------------------------------------------------------------------------------------


def _object(what: str, value: object, known: Sequence[str]) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise PlanRefused(f"{what} is {value!r:.60}; write an object with {', '.join(known)}")
    for key in value:
        if key not in known:
            close = difflib.get_close_matches(str(key)[:80], known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            raise PlanRefused(f"{what} has no {key!r:.60}; {hint}")
    return value


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise PlanRefused(f"{what} is {'missing' if value is None else f'{value!r:.60}'}; write a text")
    return value


def _number(what: str, value: object) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise PlanRefused(f"`{what}:` is {value!r:.60}; write a number of seconds, such as 5")
    return value


def _whole_number(what: str, value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise PlanRefused(f"`{what}:` is {value!r:.60}; write a whole number, such as 2")
    return value
