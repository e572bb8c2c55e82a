"""A step's compensation: written in a plan file or in Python, read back the same, refused where it cannot be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from canoa import Canoa, PlanRefused
from canoa.errors import WrongUse
from canoa.execution.plan import FromInput, FromStep, Plan, Step
from canoa.execution.plan_checks import checked
from canoa.execution.plan_files import plan_from_text
from canoa.execution.plan_inputs import compensation_input
from canoa.execution.plan_reading import plan_from_document
from canoa.execution.plan_writing import document
from canoa.vocabulary import ActionName

CHARGE = ActionName("shop.charge")
REFUND = ActionName("shop.refund")

app = Canoa("shop")


@app.action
def charge(card: str, cents: int) -> str:
    return "ch-1"


@app.action
def refund(input: dict[str, Any], output: str | None) -> None: ...


def said(compensation: object) -> dict[str, Any]:
    return {"plan": "order", "steps": {"charge": {"action": "shop.charge", "compensate": compensation}}}


# --- Files --------------------------------------------------------------------------------------------------


def test_a_compensation_in_a_plan_file_is_read_and_written_the_same() -> None:
    plan = plan_from_document(said("shop.refund"))

    assert plan.steps[0].compensate == REFUND
    assert document(plan) == said("shop.refund")
    assert plan_from_document(document(plan)) == plan


def test_yaml_says_it_in_one_word() -> None:
    plan = plan_from_text("plan: order\nsteps:\n  charge: {action: shop.charge, compensate: shop.refund}\n")

    assert plan.steps[0] == Step(name="charge", action=CHARGE, compensate=REFUND)


def test_its_urn_is_as_good_as_its_name() -> None:
    assert plan_from_document(said("urn:sapparchi:Action:shop.refund")).steps[0].compensate == REFUND


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("refund", "its compensation: 'refund' is not an action's name"),
        ("shop.charge", "its compensation is shop.charge, its own action, which would do it again"),
        ("urn:sapparchi:Action:shop.charge", "its own action"),
        ("shop refund", "its compensation: .* is not an action's name"),
        (7, "write the name of an action"),
        ([], "write the name of an action"),
        ({"action": "shop.refund", "compensate": "shop.charge"}, "it has no compensation itself"),
    ],
)
def test_a_compensation_that_cannot_be_is_refused_with_its_step(wrong: object, says: str) -> None:
    with pytest.raises(PlanRefused, match=f"step 'charge': .*{says}") as refused:
        plan_from_document(said(wrong))

    assert refused.value.step == "charge"


def test_a_plan_from_elsewhere_is_checked_as_well() -> None:
    plan = Plan(name="order", steps=(Step(name="charge", action=CHARGE, compensate=ActionName("no name")),))

    with pytest.raises(PlanRefused, match="its compensation"):
        checked(plan)


def test_a_step_without_one_is_written_as_it_always_was() -> None:
    plan = Plan(name="order", steps=(Step(name="charge", action=CHARGE),))

    assert msgspec.json.encode(plan) == b'{"name":"order","steps":[{"name":"charge","action":"shop.charge"}]}'


# --- Python -------------------------------------------------------------------------------------------------


def test_a_step_in_python_names_an_action_that_undoes_it() -> None:
    plan = app.plan("order")
    paid = plan.step(charge, plan.input["card"], 995, compensate=refund)
    plan.step("depot.ship", receipt=paid, compensate="depot.fetch_back")

    assert [step.compensate for step in plan.build().steps] == ["shop.refund", "depot.fetch_back"]


@app.action
def only_output(output: str) -> None: ...


@app.action
def other_words(receipt: str, note: str) -> None: ...


@app.action
def more_words(input: dict[str, Any], output: str | None, note: str) -> None: ...


@pytest.mark.parametrize("action", [only_output, other_words, more_words])
def test_an_action_that_cannot_take_what_a_compensation_gets_is_refused(action: Any) -> None:
    plan = app.plan(f"refused-{action.name}")

    with pytest.raises(WrongUse, match="`input` and `output`"):
        plan.step(charge, "4711", 995, compensate=action)


@app.action
def whole(done: dict[str, Any]) -> None: ...


@app.action
def with_defaults(input: dict[str, Any], output: str | None = None, note: str = "") -> None: ...


@app.action
def nothing() -> None: ...


@pytest.mark.parametrize("action", [refund, whole, with_defaults, nothing])
def test_an_action_takes_both_by_name_or_as_one_parameter_or_neither(action: Any) -> None:
    plan = app.plan(f"taken-{action.name}")

    plan.step(charge, "4711", 995, compensate=action)

    sent = compensation_input(plan.build().steps[0], b"{}", {}, b'"ch-1"')
    action.signature.decode(action.signature.routed_body(sent), None)


def test_what_is_no_action_is_refused() -> None:
    plan = app.plan("no-action")

    with pytest.raises(WrongUse, match="is no action"):
        plan.step(charge, "4711", 995, compensate=7)  # type: ignore[call-overload]


def test_one_that_is_given_by_name_is_checked_where_the_program_defines_it() -> None:
    plan = app.plan("by-name")
    plan.step(charge, "4711", 995, compensate="shop.other_words")

    for _ in range(2):
        with pytest.raises(PlanRefused, match=r"step 'charge': shop.other_words cannot compensate") as refused:
            plan.build()
        assert refused.value.step == "charge"


# --- What it gets -------------------------------------------------------------------------------------------


def test_it_gets_what_the_step_got_and_what_it_gave() -> None:
    step = Step(name="ship", action=CHARGE, after=("pay",), arguments={"to": FromInput("to"), "r": FromStep("pay")})

    body = compensation_input(step, b'{"to":"Lund"}', {"pay": b'"ch-1"'}, b"[1, 2]")

    assert msgspec.json.decode(body) == {"input": {"to": "Lund", "r": "ch-1"}, "output": [1, 2]}


def test_where_nobody_knows_what_the_step_gave_it_gets_null() -> None:
    body = compensation_input(Step(name="charge", action=CHARGE), b'"whole"', {}, None)

    assert msgspec.json.decode(body) == {"input": "whole", "output": None}
