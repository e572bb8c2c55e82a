"""A plan that is written as a plan file is read as the same plan."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.plan import FromInput, FromStep, Given, Plan, Step
from canoa.execution.plan_checks import checked
from canoa.execution.plan_reading import plan_from_document
from canoa.execution.plan_writing import document
from canoa.vocabulary import ActionName

KEYS = st.text(min_size=1, max_size=5)
TEXTS = st.one_of(st.text(max_size=5), st.sampled_from(["$", "$fetch", "$$", "$input.a"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=5,
)


def steps_after(names: list[str]) -> st.SearchStrategy[Step]:
    earlier = st.sampled_from(names) if names else st.nothing()
    sources = st.one_of(
        st.builds(FromInput, st.none() | KEYS),
        st.builds(Given, VALUES),
        st.builds(FromStep, earlier, st.none() | KEYS),
    )
    return st.builds(
        Step,
        name=st.just(f"step-{len(names)}"),
        action=st.just(ActionName("shop.resize")),
        after=st.lists(earlier, max_size=2, unique=True).map(tuple) if names else st.just(()),
        arguments=st.none() | st.dictionaries(KEYS, sources, max_size=3),
        timeout_s=st.none() | st.just(2.5),
        retries=st.none() | st.just(0),
    )


NAMES = [f"step-{number}" for number in range(5)]
STEPS = [steps_after(NAMES[:number]) for number in range(5)]
PLANS = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        lambda output, *steps: checked(Plan(name="made-up", steps=steps, output=output)),
        st.none() | st.sampled_from(NAMES[:count]),
        *STEPS[:count],
    )
)


@given(PLANS)
def test_reading_what_was_written_gives_the_same_plan(plan: Plan) -> None:
    again = plan_from_document(document(plan))

    assert unordered(again) == unordered(plan)


def unordered(plan: Plan) -> list[Any]:
    """The order of names in `after` says nothing."""
    steps = [(each.name, each.action, set(each.after), each.arguments) for each in plan.steps]
    limits = [(each.timeout_s, each.retries) for each in plan.steps]
    return [plan.name, plan.output, steps, limits]


def test_a_plan_file_says_what_a_person_would_write() -> None:
    fetch = Step(name="fetch", action=ActionName("continuum.fetch"), arguments={"url": FromInput("url")})
    report = Step(
        name="report",
        action=ActionName("continuum.report"),
        after=("fetch", "warm"),
        arguments={"data": FromStep("fetch"), "price": Given("$5")},
        retries=2,
    )
    warm = Step(name="warm", action=ActionName("continuum.warm"))

    assert document(Plan(name="power-factor", steps=(fetch, warm, report), output="report")) == {
        "plan": "power-factor",
        "steps": {
            "fetch": {"action": "continuum.fetch", "with": {"url": "$input.url"}},
            "warm": {"action": "continuum.warm"},
            "report": {
                "action": "continuum.report",
                "with": {"data": "$fetch", "price": "$$5"},
                "after": ["warm"],
                "retry": 2,
            },
        },
        "output": "report",
    }
