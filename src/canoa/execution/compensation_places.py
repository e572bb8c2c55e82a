"""Where compensations stand among the steps of a task, and which of them wait for which. Pure, and once per plan.

They stand behind the plan's own steps, that of the last step first, and look like steps to whoever stores, sends and
times them. When they run is in `compensation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.execution.plan import Plan, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDING: Final = ".compensation"
"""Of their names: those that plans give have no dot."""


def undone_steps(plan: Plan) -> tuple[int, ...]:
    """The places of the steps that name a compensation, the last one first."""
    return tuple(at for at in range(len(plan.steps) - 1, -1, -1) if plan.steps[at].compensate is not None)


def compensating_step(step: Step) -> Step:
    """Limits and placement are its action's own."""
    assert step.compensate is not None
    return Step(name=step.name + ENDING, action=step.compensate)


def waits(behind: Sequence[Sequence[int]], undoes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each of the compensations, those of the nearest steps behind its own that have one. `behind`: by place of the
    plan's own steps, who waits for them."""
    count = len(behind)
    place_of = {at: count + number for number, at in enumerate(undoes)}
    nearest = [0] * count  # as bits by place: some plans would make long lists of them
    for at in range(count - 1, -1, -1):
        for later in behind[at]:
            nearest[at] |= 1 << place_of[later] if later in place_of else nearest[later]
    places = range(count, count + len(undoes))
    return tuple(tuple(place for place in places if nearest[at] >> place & 1) for at in undoes)
