"""Whether a plan can run: names, references, cycles, sizes. What comes out is a plan the managers need not doubt.

Pure. Whoever reads or builds a plan (`plan_reading.py`, `canoa.plan`) ends here; a plan from elsewhere does as well.
"""

from __future__ import annotations

import difflib
import heapq
import math
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import PlanRefused, WrongUse
from canoa.execution.plan import FromInput, FromStep, Plan, Source, Step
from canoa.urn import action_name, checked_part, task_name
from canoa.wire.codec import Codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from canoa.vocabulary import ActionName

MAX_STEPS: Final = 1_000
MAX_PLAN_BYTES: Final = 256 * 1024
MAX_KEY_CHARS: Final = 200
MAX_TIMEOUT_S: Final = 10 * 365 * 86_400
MAX_RETRIES: Final = 2**31 - 1

SHOWN: Final = 8

_plans = Codec[Plan](Plan)


def checked(plan: Plan) -> Plan:
    """The same plan, its steps in an order in which they can run (as written, where that is one), each `after` with
    what its arguments name; or `PlanRefused`."""
    name = _plan_name(plan.name)
    if not plan.steps:
        raise PlanRefused(f"plan {name!r} has no steps; give it at least one action")
    if len(plan.steps) > MAX_STEPS:
        raise PlanRefused(f"plan {name!r} has {len(plan.steps):,} steps, over the limit of {MAX_STEPS:,}; split it")
    steps = _by_name(name, [_checked_step(name, each) for each in plan.steps])
    _check_references(name, steps, plan.output)
    ordered = _ordered(name, steps)
    return _bounded(Plan(name=name, steps=ordered, output=plan.output))  # the site is the task's: it is not written


def _plan_name(text: str) -> str:
    try:
        return task_name(text)
    except WrongUse as exc:
        raise PlanRefused(str(exc)) from exc


def _bounded(plan: Plan) -> Plan:
    """Also refuses values that could not be stored: not a number, nested too deep, of a type that cannot travel."""
    try:
        size_bytes = len(_plans.encode(plan))
    except WrongUse as exc:
        raise PlanRefused(f"plan {plan.name!r}: a value written into it cannot travel: {exc}") from exc
    if size_bytes > MAX_PLAN_BYTES:
        raise PlanRefused(
            f"plan {plan.name!r} is {size_bytes:,} bytes, over the limit of {MAX_PLAN_BYTES:,}; "
            f"pass large values as the task's input"
        )
    return plan


# --- One step -------------------------------------------------------------------------------------------


def _checked_step(plan: str, step: Step) -> Step:
    try:
        checked_part("step", step.name)
        action = action_name(step.action)
    except WrongUse as exc:
        raise PlanRefused(f"plan {plan!r}, step {step.name!r:.100}: {exc}", step=step.name) from exc
    compensate = _checked_compensation(plan, step)
    _check_limits(plan, step)
    for source in (step.arguments or {}).values():
        _check_key(plan, step.name, source)
    return msgspec.structs.replace(step, action=action, after=_all_after(step), compensate=compensate)


def _checked_compensation(plan: str, step: Step) -> ActionName | None:
    if step.compensate is None:
        return None
    try:
        name = action_name(step.compensate)
    except WrongUse as exc:
        raise PlanRefused(f"plan {plan!r}, step {step.name!r}: its compensation: {exc}", step=step.name) from exc
    if name == action_name(step.action):
        raise PlanRefused(
            f"plan {plan!r}, step {step.name!r}: its compensation is {name}, its own action, which would do it again; "
            f"name one that undoes it",
            step=step.name,
        )
    return name


def _check_limits(plan: str, step: Step) -> None:
    timeout_s, retries = step.timeout_s, step.retries
    if timeout_s is not None and (math.isnan(timeout_s) or not 0 < timeout_s <= MAX_TIMEOUT_S):
        raise PlanRefused(
            f"plan {plan!r}, step {step.name!r}: timeout {timeout_s!r:.40}: "
            f"use seconds above 0, at most {MAX_TIMEOUT_S:,} (ten years)",
            step=step.name,
        )
    if retries is not None and not 0 <= retries <= MAX_RETRIES:
        raise PlanRefused(
            f"plan {plan!r}, step {step.name!r}: retry {retries!r:.40}: use 0 (no retries) or more", step=step.name
        )


def _check_key(plan: str, step: str, source: Source) -> None:
    if not isinstance(source, FromInput | FromStep) or source.key is None:
        return
    if not 1 <= len(source.key) <= MAX_KEY_CHARS:
        raise PlanRefused(
            f"plan {plan!r}, step {step!r} refers to a key of {len(source.key):,} characters; use 1 to {MAX_KEY_CHARS}",
            step=step,
        )


def _all_after(step: Step) -> tuple[str, ...]:
    named = [each.step for each in (step.arguments or {}).values() if isinstance(each, FromStep)]
    return tuple(dict.fromkeys([*step.after, *named]))


# --- Between steps --------------------------------------------------------------------------------------


def _by_name(plan: str, steps: Iterable[Step]) -> dict[str, Step]:
    found: dict[str, Step] = {}
    for each in steps:
        if each.name in found:
            raise PlanRefused(
                f"plan {plan!r} has two steps named {each.name!r}; give one of them another name", step=each.name
            )
        found[each.name] = each
    return found


def _check_references(plan: str, steps: Mapping[str, Step], output: str | None) -> None:
    for step in steps.values():
        for name in step.after:
            if name not in steps:
                raise PlanRefused(
                    f"plan {plan!r}, step {step.name!r} refers to {_missing(name, steps)}", step=step.name
                )
    if output is not None and output not in steps:
        raise PlanRefused(f"plan {plan!r}: its output is {_missing(output, steps)}")


def _missing(name: str, steps: Mapping[str, Step]) -> str:
    close = difflib.get_close_matches(name[:80], list(steps), n=1)
    names = [repr(each) for each in list(steps)[:SHOWN]] + (["…"] if len(steps) > SHOWN else [])
    hint = f"did you mean {close[0]!r}?" if close else f"its steps are {', '.join(names)}"
    return f"step {name!r:.100}, which is not in it; {hint}"


def _ordered(plan: str, steps: Mapping[str, Step]) -> tuple[Step, ...]:
    """Of those that can run, always the one that was written first."""
    place = {name: number for number, name in enumerate(steps)}
    waits_for = {name: len(step.after) for name, step in steps.items()}
    unlocks = _unlocks(steps)
    ready = [place[name] for name, count in waits_for.items() if not count]
    names = list(steps)
    ordered: list[Step] = []
    while ready:
        name = names[heapq.heappop(ready)]
        ordered.append(steps[name])
        for each in unlocks[name]:
            waits_for[each] -= 1
            if not waits_for[each]:
                heapq.heappush(ready, place[each])
    if len(ordered) < len(steps):
        raise _cycle_refused(plan, steps, [name for name, count in waits_for.items() if count])
    return tuple(ordered)


def _unlocks(steps: Mapping[str, Step]) -> dict[str, list[str]]:
    unlocks: dict[str, list[str]] = {name: [] for name in steps}
    for step in steps.values():
        for name in step.after:
            unlocks[name].append(step.name)
    return unlocks


def _cycle_refused(plan: str, steps: Mapping[str, Step], stuck: list[str]) -> PlanRefused:
    """Whatever is stuck waits for something that is: going from one to the next must come back."""
    never = set(stuck)
    path: dict[str, None] = {}
    at = stuck[0]
    while at not in path:
        path[at] = None
        at = next(each for each in steps[at].after if each in never)
    walked = list(path)
    cycle = [*walked[walked.index(at) :], at]
    shown = cycle if len(cycle) <= 2 * SHOWN else [*cycle[:SHOWN], "…", *cycle[-SHOWN:]]
    return PlanRefused(
        f"plan {plan!r}: steps wait for each other: {' → '.join(shown)} (each for the next); "
        f"remove one of these dependencies",
        step=at,
    )
