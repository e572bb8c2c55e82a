"""A plan that is let through can run; one that is not is refused with the step and the remedy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import PlanRefused
from canoa.execution.plan import FromInput, FromStep, Given, Plan, Step
from canoa.execution.plan_checks import MAX_PLAN_BYTES, MAX_STEPS, checked
from canoa.vocabulary import ActionName


def step(name: str, *after: str, **more: Any) -> Step:
    return Step(name=name, action=ActionName("app.work"), after=after, **more)


def plan(*steps: Step, output: str | None = None, name: str = "power-factor") -> Plan:
    return Plan(name=name, steps=steps, output=output)


def refusal(refused: Plan) -> str:
    with pytest.raises(PlanRefused) as caught:
        checked(refused)
    return str(caught.value)


def test_a_plan_in_order_stays_as_it_is() -> None:
    given_plan = plan(step("a"), step("b", "a"), step("c", "a", "b"), output="c")

    assert checked(given_plan) == given_plan
    assert checked(checked(given_plan)) == checked(given_plan)


def test_steps_come_after_what_they_wait_for_and_else_as_written() -> None:
    ordered = checked(plan(step("last", "b"), step("c"), step("b", "a"), step("a")))

    assert [each.name for each in ordered.steps] == ["c", "a", "b", "last"]


def test_what_arguments_name_is_waited_for_once() -> None:
    arguments = {"x": FromStep("a"), "y": FromStep("a", "key"), "z": FromStep("b"), "u": FromInput(), "v": Given(1)}

    (*_, last) = checked(plan(step("a"), step("b"), step("c"), step("d", "c", "b", arguments=arguments))).steps

    assert last.after == ("c", "b", "a")


def test_urns_become_names() -> None:
    urns = Plan(
        name="urn:sapparchi:Task:exemplo",
        steps=(Step(name="fetch", action=ActionName("urn:sapparchi:Action:actions.fetch_data")),),
    )

    result = checked(urns)

    assert (result.name, result.steps[0].action) == ("exemplo", "actions.fetch_data")


def test_no_steps_are_refused() -> None:
    assert refusal(plan()) == "plan 'power-factor' has no steps; give it at least one action"


def test_too_many_steps_are_refused() -> None:
    assert len(checked(plan(*(step(f"s{each}") for each in range(MAX_STEPS)))).steps) == MAX_STEPS
    assert "1,001 steps, over the limit of 1,000; split it" in refusal(
        plan(*(step(f"s{each}") for each in range(MAX_STEPS + 1)))
    )


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 81, "$input", "a\n", "a/b"])
def test_a_steps_name_is_refused_unless_it_is_safe_everywhere(name: str) -> None:
    assert "cannot be a name; use 1 to 80 letters, digits, '-' or '_'" in refusal(plan(step(name)))


@pytest.mark.parametrize("action", ["", "fetch", "app..fetch", "app.fe tch", "app.#", "urn:x:app.fetch", "app.é"])
def test_strange_characters_in_an_action_are_refused_with_the_step(action: str) -> None:
    message = refusal(plan(Step(name="fetch", action=ActionName(action))))

    assert "step 'fetch'" in message
    assert "is not an action's name; write <app>.<action>" in message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "urn:x:a", "#"])
def test_strange_characters_in_a_plans_name_are_refused(name: str) -> None:
    assert "is not a plan's name" in refusal(plan(step("a"), name=name))


def test_two_steps_of_one_name_are_refused() -> None:
    assert "two steps named 'a'; give one of them another name" in refusal(plan(step("a"), step("b"), step("a")))


def test_a_missing_step_is_refused_with_the_nearest_name() -> None:
    message = refusal(plan(step("fetch"), step("report", "fetsh")))

    assert message == (
        "plan 'power-factor', step 'report' refers to step 'fetsh', which is not in it; did you mean 'fetch'?"
    )


def test_a_missing_step_like_no_other_is_refused_with_those_there_are() -> None:
    arguments = {"x": FromStep("zzz")}

    assert "step 'zzz', which is not in it; its steps are 'a', 'b'" in refusal(
        plan(step("a"), step("b", arguments=arguments))
    )


def test_an_output_that_is_no_step_is_refused() -> None:
    assert "its output is step 'reprot', which is not in it; did you mean 'report'?" in refusal(
        plan(step("report"), output="reprot")
    )


def test_a_cycle_is_refused_and_shown() -> None:
    message = refusal(plan(step("start"), step("a", "start", "c"), step("b", "a"), step("c", "b"), step("end", "c")))

    assert "a → c → b → a (each for the next); remove one of these dependencies" in message


def test_a_step_that_waits_for_itself_is_a_cycle() -> None:
    assert "a → a" in refusal(plan(step("a", arguments={"x": FromStep("a")})))


def test_a_long_cycle_does_not_flood_the_message() -> None:
    steps = [step(f"{each:03d}" + "x" * 60, f"{(each + 1) % 900:03d}" + "x" * 60) for each in range(900)]

    assert len(refusal(plan(*steps))) < 1_500


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: float) -> None:
    assert "step 'a': timeout" in refusal(plan(step("a", timeout_s=timeout_s)))


def test_negative_retries_are_refused() -> None:
    assert "step 'a': retry -1: use 0 (no retries) or more" in refusal(plan(step("a", retries=-1)))


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_of_strange_length_is_refused(key: str) -> None:
    assert "use 1 to 200" in refusal(plan(step("a", arguments={"x": FromInput(key)})))


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"])
def test_a_value_that_cannot_travel_is_refused(value: object) -> None:
    assert "a value written into it cannot travel" in refusal(plan(step("a", arguments={"x": Given(value)})))


def test_a_value_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    assert "nested too deeply" in refusal(plan(step("a", arguments={"x": Given(endless)})))


def test_a_plan_is_bounded_in_bytes() -> None:
    large = step("a", arguments={"x": Given("x" * MAX_PLAN_BYTES)})

    assert "over the limit of 262,144; pass large values as the task's input" in refusal(plan(large))


graphs = st.integers(1, 12).flatmap(
    lambda count: st.lists(st.sets(st.integers(0, count - 1), max_size=4), min_size=count, max_size=count)
)


@given(graphs)
def test_any_graph_is_ordered_or_refused_with_a_true_cycle(edges: list[set[int]]) -> None:
    steps = [step(f"s{number}", *(f"s{each}" for each in sorted(after))) for number, after in enumerate(edges)]

    try:
        result = checked(plan(*steps))
    except PlanRefused as refused:
        shown = str(refused).split("each other: ")[1].split(" (")[0].split(" → ")
        assert shown[0] == shown[-1]
        assert all(int(after[1:]) in edges[int(name[1:])] for name, after in pairwise(shown))
    else:
        seen: set[str] = set()
        for each in result.steps:
            assert seen.issuperset(each.after)
            seen.add(each.name)
        assert seen == {each.name for each in steps}


@given(st.permutations(range(8)))
def test_the_order_depends_only_on_what_was_written(order: list[int]) -> None:
    chain = [step(f"s{each}", *([f"s{each - 1}"] if each else [])) for each in range(8)]

    assert [each.name for each in checked(plan(*(chain[each] for each in order))).steps] == [f"s{n}" for n in range(8)]
