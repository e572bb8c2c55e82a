"""Whatever a request carries becomes a plan that can run, or is refused; nothing else happens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import PlanRefused
from canoa.execution.plan import FromInput, FromStep, Given, Plan, Step
from canoa.execution.plan_checks import checked
from canoa.execution.plan_reading import from_actions, from_task_plan, plan_from_document
from canoa.vocabulary import ActionName
from canoa.wire.sapparchi import PlannedStep

FETCH = "urn:sapparchi:Action:actions.fetch_data"
PF = "urn:sapparchi:Action:actions.fator_potencia"


TASK = "urn:sapparchi:Task:exemplo"


def shape(plan: Plan) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.name, each.action, each.after) for each in plan.steps]


def test_a_list_of_actions_is_a_chain_in_which_each_gets_the_previous_result() -> None:
    plan = from_actions(TASK, [FETCH, PF])

    assert shape(plan) == [
        ("fetch_data", "actions.fetch_data", ()),
        ("fator_potencia", "actions.fator_potencia", ("fetch_data",)),
    ]
    assert (plan.name, [each.arguments for each in plan.steps]) == ("exemplo", [None, None])


def test_one_action_may_be_in_the_list_many_times() -> None:
    names = [name for name, _, _ in shape(from_actions(TASK, [FETCH, FETCH, "a.fetch_data-2", FETCH]))]

    assert names == ["fetch_data", "fetch_data-2", "fetch_data-2-2", "fetch_data-3"]


@given(st.lists(st.sampled_from(["a.b", "a.b-2", "a.b-2-2", "x." + "y" * 80, "x." + "y" * 78 + "-2"]), min_size=1))
def test_any_list_of_sound_actions_runs_in_its_order(actions: list[str]) -> None:
    steps = shape(from_actions(TASK, actions))

    assert [action for _, action, _ in steps] == actions
    assert [after for _, _, after in steps] == [(), *((name,) for name, _, _ in steps[:-1])]


def test_a_single_action_without_a_task_is_named_after_the_action() -> None:
    plan = from_actions("", [FETCH])

    assert plan == Plan(
        name="actions.fetch_data", steps=(Step(name="fetch_data", action=ActionName("actions.fetch_data")),)
    )


def test_steps_of_a_request_may_come_in_any_order() -> None:
    a, b = PlannedStep(step="a", action=FETCH), PlannedStep(step="b", action=FETCH)
    c = PlannedStep(step="c", action=PF, after=["a", "b"])

    assert shape(from_task_plan(TASK, [c, a, b])) == [
        ("a", "actions.fetch_data", ()),
        ("b", "actions.fetch_data", ()),
        ("c", "actions.fator_potencia", ("a", "b")),
    ]


@pytest.mark.parametrize(
    ("task_id", "actions", "why"),
    [
        (TASK, ["fetch"], "is not an action's name"),
        (TASK, ["a.b", "urn:sapparchi:Action:a b.c"], "is not an action's name"),
        ("urn:sapparchi:Task:a b", ["a.b"], "is not a plan's name"),
        (TASK, ["a.b"] * 1_001, "1,001 actions cannot run; give it 1 to 1,000"),
        (TASK, [], "0 actions cannot run"),
    ],
)
def test_actions_that_cannot_run_are_refused(task_id: str, actions: list[str], why: str) -> None:
    with pytest.raises(PlanRefused, match=why):
        from_actions(task_id, actions)


@pytest.mark.parametrize(
    ("task_id", "planned", "why"),
    [
        (TASK, [PlannedStep(step="a", action=FETCH, after=["a"])], "a → a"),
        (TASK, [PlannedStep(step="a", action=FETCH, after=["x"])], "refers to step 'x'"),
        (TASK, [], "has no steps"),
        ("", [PlannedStep(step="a", action=FETCH)], "needs a task_id"),
    ],
)
def test_steps_that_cannot_run_are_refused(task_id: str, planned: list[PlannedStep], why: str) -> None:
    with pytest.raises(PlanRefused, match=why):
        from_task_plan(task_id, planned)


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=4))
def test_strange_requests_are_read_or_refused(task_id: str, actions: list[str]) -> None:
    try:
        plan = from_actions(task_id, actions)
    except PlanRefused:
        return
    assert checked(plan) == plan


# --- Documents ------------------------------------------------------------------------------------------

DOCUMENT: dict[str, Any] = {
    "plan": "power-factor",
    "steps": {
        "fetch": {"action": "continuum.fetch_data", "with": {"url": "$input.url", "all": "$input"}},
        "pf": {"action": "continuum.power_factor", "with": {"data": "$fetch", "n": 3, "price": "$$5"}},
        "report": {
            "action": "continuum.report",
            "with": {"pf": "$pf", "data": "$fetch.values", "deep": "$fetch.a.b", "list": [1, {"x": "$$y"}]},
            "timeout": 5,
            "retry": 2,
            "after": "tell",
        },
        "tell": "continuum.tell",
    },
    "output": "report",
}


def test_a_document_says_a_whole_plan() -> None:
    fetch, pf, tell, report = plan_from_document(DOCUMENT).steps

    assert fetch.arguments == {"url": FromInput("url"), "all": FromInput()}
    assert pf.arguments == {"data": FromStep("fetch"), "n": Given(3), "price": Given("$5")}
    assert tell == Step(name="tell", action=ActionName("continuum.tell"))
    assert report == Step(
        name="report",
        action=ActionName("continuum.report"),
        after=("tell", "pf", "fetch"),
        arguments={
            "pf": FromStep("pf"),
            "data": FromStep("fetch", "values"),
            "deep": FromStep("fetch", "a.b"),
            "list": Given([1, {"x": "$y"}]),
        },
        timeout_s=5,
        retries=2,
    )
    assert plan_from_document(DOCUMENT).output == "report"


def with_step(step: object) -> dict[str, Any]:
    return {"plan": "p", "steps": {"a": "x.a", "b": step}}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "a plan is None; write an object with plan, steps, output"),
        ([], "a plan is []"),
        ({"plan": "p"}, "a plan needs `steps:`"),
        ({"plan": "p", "steps": []}, "a plan needs `steps:`"),
        ({"plan": "p", "steps": {}}, "has no steps"),
        ({"steps": {"a": "x.a"}}, "`plan:`, its name, is missing"),
        ({"plan": 3, "steps": {"a": "x.a"}}, "`plan:`, its name, is 3"),
        ({"plan": "p", "step": {}}, "a plan has no 'step'; did you mean 'steps'?"),
        ({"plan": "p", "steps": {"input": "x.a"}}, "a step cannot be named 'input'"),
        ({"plan": "p", "steps": {1: "x.a"}}, "a step cannot be named 1"),
        ({"plan": "p", "steps": {"a": "x.a"}, "output": "b"}, "its output is step 'b', which is not in it"),
        ({"plan": "p", "steps": {"a": "x.a"}, "output": 1}, "`output:`, a step's name, is 1"),
        (with_step(None), "step 'b': it is None; write an object with action, with, after, timeout, retry"),
        (with_step({}), "step 'b': `action:` is missing"),
        (with_step({"action": "x.b", "wiht": {}}), "step 'b': it has no 'wiht'; did you mean 'with'?"),
        (with_step({"action": "x.b", "with": "$a"}), "step 'b': `with:` is '$a'; write an object of values"),
        (with_step({"action": "x.b", "with": {1: 2}}), "step 'b': a parameter in `with:` is 1"),
        (with_step({"action": "x.b", "with": {"p": "$"}}), "step 'b': '$' refers to nothing"),
        (with_step({"action": "x.b", "with": {"p": "$a."}}), "step 'b': '$a.' refers to nothing"),
        (with_step({"action": "x.b", "with": {"p": ["$a"]}}), "step 'b': '$a' stands inside a list or an object"),
        (with_step({"action": "x.b", "with": {"p": "$z"}}), "step 'b' refers to step 'z', which is not in it"),
        (with_step({"action": "x.b", "after": {"a": 1}}), "step 'b': `after:` is {'a': 1}"),
        (with_step({"action": "x.b", "after": [1]}), "step 'b': `after:` is 1; write a text"),
        (with_step({"action": "x.b", "timeout": "5s"}), "step 'b': `timeout:` is '5s'; write a number of seconds"),
        (with_step({"action": "x.b", "timeout": True}), "step 'b': `timeout:` is True"),
        (with_step({"action": "x.b", "retry": 1.5}), "step 'b': `retry:` is 1.5; write a whole number"),
        (with_step({"action": "b"}), "step 'b': 'b' is not an action's name"),
    ],
)
def test_what_a_document_gets_wrong_is_told_with_the_step_and_the_remedy(document: object, why: str) -> None:
    with pytest.raises(PlanRefused) as caught:
        plan_from_document(document)

    assert why in str(caught.value)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["$a", "$$", "a", "x.a", "$input.k"])
documents = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["plan", "steps", "output", "action", "with", "after", "a"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(documents)
def test_any_document_is_read_or_refused(document: object) -> None:
    try:
        plan = plan_from_document(document)
    except PlanRefused:
        return
    assert checked(plan) == plan
