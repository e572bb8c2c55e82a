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


def chosen(choices: SameChoices, action: ActionName = FETCH, *, at_ms: int = NOW_MS) -> str:
    choice = choices.choose(Need(action=action, now_ms=at_ms))
    assert choice is not None
    return choice.node_id


def test_moves_that_are_taken_again_get_the_same_nodes(route: Nodes) -> None:
    choices = SameChoices(route)
    first = [chosen(choices), chosen(choices, FACTOR), chosen(choices)]
    choices.begin_again()

    assert [chosen(choices, at_ms=LATER_MS) for _ in range(2)] == [first[0], first[2]]
    assert chosen(choices, FACTOR) == first[1]
    assert route.out.total() == 3


def test_who_asks_for_more_than_before_gets_another_choice(route: Nodes) -> None:
    choices = SameChoices(route)
    first = chosen(choices)
    choices.begin_again()

    assert chosen(choices) == first
    assert chosen(choices) != first


def test_a_node_that_was_chosen_in_vain_has_nothing_of_it_to_do(route: Nodes) -> None:
    choices = SameChoices(route)
    chosen(choices)
    chosen(choices)
    choices.begin_again()
    kept = chosen(choices)
    choices.stand()
    choices.take_back_rest(LATER_MS)

    assert +route.out == {kept: 1}


def test_what_stands_is_neither_taken_back_nor_given_to_others(route: Nodes) -> None:
    choices = SameChoices(route)
    first = chosen(choices)
    choices.stand()
    choices.begin_again()
    second = chosen(choices)
    choices.take_back_rest(LATER_MS)

    assert second != first
    assert +route.out == {first: 1}
