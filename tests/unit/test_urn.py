"""Action names are safe wherever they travel: in queue names, routing keys and topics."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import WrongUse
from canoa.urn import MAX_NAME_CHARS, action_name, action_urn, checked_part, task_name, task_urn

SAFE = string.ascii_letters + string.digits + "_-"
parts = st.text(SAFE, min_size=1, max_size=80)


@given(parts, parts)
def test_a_name_and_its_urn_mean_the_same_action(app: str, function: str) -> None:
    name = action_name(f"{app}.{function}")

    assert action_urn(name) == f"urn:sapparchi:Action:{app}.{function}"
    assert action_name(action_urn(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "resize",
        ".",
        "shop.",
        ".resize",
        "shop..resize",
        "shop.resize.",
        "shop.resize\n",
        "a." * 80 + "aa",
        "shop.re size",
        "shop.a/b",
        "shop.é",
        "urn:other:shop.a",
    ],
)
def test_what_is_no_name_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(
        WrongUse, match=r"is not an action's name; write <app>\.<action>, such as shop\.resize"
    ) as caught:
        action_name(text)

    assert repr(text) in str(caught.value)


def test_actions_of_other_nodes_may_have_more_parts() -> None:
    assert action_name("urn:sapparchi:Action:nome.da.action") == "nome.da.action"


@given(st.lists(parts, min_size=1, max_size=4).map(".".join).filter(lambda name: len(name) <= MAX_NAME_CHARS))
def test_a_plans_name_and_its_urn_mean_the_same_plan(name: str) -> None:
    assert task_urn(name) == f"urn:sapparchi:Task:{name}"
    assert task_name(task_urn(name)) == task_name(name) == name


@pytest.mark.parametrize("text", ["", ".", "a b", "a/b", "a..b", "é", "urn:other:a", "#", "*", "x" * 81, "a\n"])
def test_what_is_no_plans_name_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(WrongUse, match=r"is not a plan's name; use letters, digits, .* such as power-factor"):
        task_name(text)


@given(st.text(max_size=100))
def test_a_part_is_taken_as_it_is_or_refused(text: str) -> None:
    is_safe = 1 <= len(text) <= 80 and set(text) <= set(SAFE)

    if is_safe:
        assert checked_part("app", text) == text
    else:
        with pytest.raises(WrongUse, match="cannot be a name; use 1 to 80 letters, digits, '-' or '_'"):
            checked_part("app", text)


def test_a_long_wrong_name_does_not_flood_the_message() -> None:
    with pytest.raises(WrongUse) as caught:
        action_name("x" * 10_000)

    assert len(str(caught.value)) < 400
