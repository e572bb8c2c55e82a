"""What a step gets is what it waits for, unchanged; what a task gives is what its last steps gave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import InputMissing, PayloadTooLarge, Undecodable
from canoa.execution.plan import FromInput, FromStep, Given, Plan, Source, Step
from canoa.execution.plan_inputs import MAX_JOINED_BYTES, final_steps, input_of, sound, task_output
from canoa.vocabulary import ActionName

INPUT = b'{"url": "http://sensor/data", "big": 123456789012345678901234567890, "exact": 0.10}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def step(name: str = "report", *after: str, arguments: dict[str, Source] | None = None) -> Step:
    return Step(name=name, action=ActionName("app.work"), after=after, arguments=arguments)


def plan(*steps: Step, output: str | None = None) -> Plan:
    return Plan(name="power-factor", steps=steps, output=output)


def output_of(of: Plan, outputs: dict[str, bytes]) -> bytes:
    return task_output(of, final_steps(of), outputs)


def test_a_step_that_waits_for_nothing_gets_the_tasks_input() -> None:
    assert input_of(step(), INPUT, {}) == INPUT


def test_a_step_that_waits_for_one_gets_its_result() -> None:
    assert input_of(step("b", "a"), INPUT, {"a": b"[1, 2]", "other": b"3"}) == b"[1, 2]"


def test_a_step_that_waits_for_several_gets_an_object_of_their_results() -> None:
    assert input_of(step("c", "b", "a"), INPUT, {"a": b"1", "b": b"[2]"}) == b'{"b":[2],"a":1}'


def test_arguments_are_put_together_by_parameter() -> None:
    arguments: dict[str, Source] = {
        "whole": FromInput(),
        "part": FromInput("url"),
        "result": FromStep("a"),
        "key": FromStep("a", "values"),
        "fixed": Given({"limit": 3}),
    }

    body = input_of(step("b", "a", arguments=arguments), b'{"url":"x"}', {"a": b'{"values":[1],"more":2}'})

    assert json.loads(body) == {
        "whole": {"url": "x"},
        "part": "x",
        "result": {"values": [1], "more": 2},
        "key": [1],
        "fixed": {"limit": 3},
    }


def test_no_arguments_at_all_is_an_empty_object() -> None:
    assert input_of(step("b", "a", arguments={}), INPUT, {"a": b"1"}) == b"{}"


def test_numbers_are_passed_on_digit_by_digit() -> None:
    arguments: dict[str, Source] = {"big": FromInput("big"), "exact": FromInput("exact")}

    assert input_of(step(arguments=arguments), INPUT, {}) == b'{"big":123456789012345678901234567890,"exact":0.10}'


@given(st.dictionaries(st.text(max_size=20), values, min_size=1, max_size=5), st.data())
def test_every_key_comes_through_as_it_was(value: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    arguments: dict[str, Source] = {"x": FromStep("a", key), "y": FromInput(key)}
    body = json.dumps(value).encode()

    found = input_of(step("b", "a", arguments=arguments), body, {"a": body})

    assert json.loads(found) == {"x": value[key], "y": value[key]}


def test_a_missing_key_is_named_with_those_there_are() -> None:
    with pytest.raises(InputMissing) as caught:
        input_of(step(arguments={"x": FromInput("uri")}), b'{"url":1,"n":2}', {})

    assert str(caught.value) == (
        "step 'report' needs key 'uri' of the task's input, which has 'url', 'n'; add it there, or change the plan"
    )


def test_a_missing_key_does_not_flood_the_message() -> None:
    wide = json.dumps({f"{each}" + "k" * 1000: 1 for each in range(1000)}).encode()

    with pytest.raises(InputMissing) as caught:
        input_of(step(arguments={"x": FromInput("uri")}), wide, {})

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("body", [b"[1]", b'"text"', b"null", b"3"])
def test_a_key_of_what_has_none_is_refused(body: bytes) -> None:
    with pytest.raises(InputMissing, match="needs key 'k' of what step 'a' gave, which is no object"):
        input_of(step("b", "a", arguments={"x": FromStep("a", "k")}), b"{}", {"a": body})


def test_what_no_broker_would_take_is_refused() -> None:
    half = b'"' + b"x" * (MAX_JOINED_BYTES // 2) + b'"'

    with pytest.raises(PayloadTooLarge, match=r"the input of step 'c' is .* let steps give references"):
        input_of(step("c", "a", "b"), b"{}", {"a": half, "b": half})
    with pytest.raises(PayloadTooLarge, match="the result of plan 'power-factor'"):
        output_of(plan(step("a"), step("b")), {"a": half, "b": half})


def test_a_task_gives_what_its_plan_names() -> None:
    named = plan(step("a"), step("b", "a"), output="a")

    assert output_of(named, {"a": b"1", "b": b"2"}) == b"1"


def test_a_task_gives_what_nobody_waits_for() -> None:
    assert output_of(plan(step("a"), step("b", "a")), {"a": b"1", "b": b"2"}) == b"2"
    assert output_of(plan(step("a"), step("b", "a"), step("c", "a")), {"a": b"1", "b": b"2", "c": b"3"}) == (
        b'{"b":2,"c":3}'
    )


@pytest.mark.parametrize("text", ['{"a": 1}', b'{"a": 1}', '  {"a": 1}\n'])
def test_sound_json_is_taken_as_it_is(text: str | bytes) -> None:
    assert sound(text) == b'{"a": 1}'


@pytest.mark.parametrize(
    "text", ["", "{", "nul", "{'a': 1}", "[1,]", "1 2", "NaN", b'"\xff"', "\ud800", "[" * 500 + "]" * 500, "[" * 10**6]
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(Undecodable):
        sound(text)


@given(values)
def test_any_json_is_sound(value: Any) -> None:
    assert json.loads(sound(json.dumps(value))) == value


@given(st.binary(max_size=30))
def test_what_is_called_sound_can_be_read_by_anybody(body: bytes) -> None:
    try:
        found = sound(body)
    except Undecodable:
        return
    json.loads(found.decode())
