"""Moves that are taken again get the same nodes; and nodes have nothing to do for what came to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import FACTOR, FETCH, Nodes
from tests.contract.store.words import NOW_MS

from canoa.execution.step_moves import Need
from canoa.store.same_choices import SameChoices

if TYPE_CHECKING:
    from canoa.vocabulary import ActionName

LATER_MS = NOW_MS + 1


@pytest.fixture
def route() -> Nodes:
    return Nodes("gw-1", "gw-2", "gw-3")


def chosen(choices: SameChoices, step: int, action: ActionName = FETCH, *, at_ms: int = NOW_MS) -> str:
    choice = choices.choose(Need(action=action, now_ms=at_ms, task_id="a", step=step))
    assert choice is not None
    return choice.node_id


def test_steps_that_are_taken_again_get_the_same_nodes_also_where_others_are_void(route: Nodes) -> None:
    choices = SameChoices(route)
    first = [chosen(choices, step) for step in range(5)]
    choices.begin_again()

    assert [chosen(choices, step, at_ms=LATER_MS) for step in (1, 2, 4)] == [first[1], first[2], first[4]]
    assert route.out.total() == 5


def test_a_step_that_asks_for_something_else_gets_another_choice(route: Nodes) -> None:
    choices = SameChoices(route)
    first = chosen(choices, 0)
    choices.begin_again()

    assert chosen(choices, 0, FACTOR) != first
    assert route.out.total() == 2


def test_a_step_that_asks_more_often_than_before_gets_another_choice(route: Nodes) -> None:
    choices = SameChoices(route)
    first = chosen(choices, 0)
    choices.begin_again()

    assert chosen(choices, 0) == first
    assert chosen(choices, 0) != first


def test_a_node_that_was_chosen_in_vain_has_nothing_of_it_to_do(route: Nodes) -> None:
    choices = SameChoices(route)
    chosen(choices, 0)
    chosen(choices, 1)
    choices.begin_again()
    kept = chosen(choices, 1)
    choices.stand()
    choices.take_back_rest(LATER_MS)

    assert +route.out == {kept: 1}


def test_what_stands_is_neither_taken_back_nor_given_again(route: Nodes) -> None:
    choices = SameChoices(route)
    first = chosen(choices, 0)
    choices.stand()
    choices.begin_again()
    second = chosen(choices, 0)
    choices.take_back_rest(LATER_MS)

    assert second != first
    assert +route.out == {first: 1}
