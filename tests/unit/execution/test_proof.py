"""Whether a node can receive work: what it answered, what it missed and what its queue looks like give one verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.execution.proof import (
    AGAIN_S,
    ANSWER_WITHIN_S,
    EVERY_S,
    OUT,
    Answered,
    Doubted,
    Missed,
    NotSent,
    Place,
    Proof,
    Returned,
    Sent,
    Ticked,
    View,
    next_s,
    on,
    overdue_s,
)

if TYPE_CHECKING:
    from canoa.execution.proof import Event

GRACE_S = 60.0


class Judged:
    """A node that is told events; `miss` is a canary that is sent and not answered in time."""

    def __init__(self, proof: Proof = Proof.UNPROVEN) -> None:
        self.now_s = 1000.0
        self.view = View(proof=proof)

    def tell(self, *events: Event) -> Proof:
        for event in events:
            self.view = on(self.view, event, self.now_s, grace_s=GRACE_S)
        return self.view.proof

    def wait(self, seconds: float) -> Proof:
        self.now_s += seconds
        return self.tell(Ticked())

    def miss(self, place: Place, *, is_full: bool = False, shows_life: bool = False) -> Proof:
        due_s = next_s(self.view)
        assert due_s is not None
        self.now_s = max(self.now_s, due_s)
        self.tell(Sent())
        self.now_s += ANSWER_WITHIN_S
        return self.tell(Missed(place=place, is_full=is_full, shows_life=shows_life))


def test_a_node_is_unproven_until_it_answers() -> None:
    node = Judged()

    assert node.tell(Sent(), NotSent()) is Proof.UNPROVEN
    assert node.tell(Sent(), Answered()) is Proof.ONLINE


def test_an_answered_step_proves_a_node_as_a_canary_does() -> None:
    assert Judged().tell(Answered(is_canary=False)) is Proof.ONLINE


@pytest.mark.parametrize("before", [Proof.UNPROVEN, Proof.ONLINE, Proof.CUT_OFF, Proof.DEAD])
def test_a_node_that_listens_and_misses_two_canaries_is_deaf(before: Proof) -> None:
    node = Judged(before)

    assert node.miss(Place.HEARD) is before
    assert node.miss(Place.HEARD) is Proof.DEAF


def test_one_missed_canary_before_an_answer_says_nothing() -> None:
    node = Judged(Proof.ONLINE)

    for _ in range(3):
        assert node.miss(Place.HEARD) is Proof.ONLINE
        node.tell(Answered())


def test_a_node_without_a_listener_that_shows_life_is_deaf_and_not_cut_off() -> None:
    node = Judged(Proof.ONLINE)

    node.miss(Place.DESERTED, shows_life=True)

    assert node.miss(Place.DESERTED, shows_life=True) is Proof.DEAF


def test_a_busy_node_that_takes_nothing_more_is_not_deaf() -> None:
    node = Judged(Proof.ONLINE)

    assert {node.miss(Place.HEARD, is_full=True) for _ in range(10)} == {Proof.ONLINE}


def test_a_node_whose_queue_nobody_listens_on_is_cut_off_and_dead_after_its_grace() -> None:
    node = Judged(Proof.ONLINE)

    assert node.miss(Place.DESERTED) is Proof.CUT_OFF
    assert node.wait(GRACE_S - 1) is Proof.CUT_OFF
    assert node.wait(1) is Proof.DEAD
    assert node.miss(Place.DESERTED) is Proof.DEAD


def test_a_node_without_a_queue_is_dead() -> None:
    assert Judged(Proof.ONLINE).miss(Place.MISSING) is Proof.DEAD


@pytest.mark.parametrize("shows_life", [True, False])
def test_a_node_whose_queue_cannot_be_seen_is_judged_by_its_signs_of_life(shows_life: bool) -> None:
    node = Judged(Proof.ONLINE)

    node.miss(Place.HIDDEN, shows_life=shows_life)

    assert node.miss(Place.HIDDEN, shows_life=shows_life) is (Proof.DEAF if shows_life else Proof.CUT_OFF)


@pytest.mark.parametrize("before", sorted(OUT))
def test_one_answered_canary_brings_a_node_back_at_once(before: Proof) -> None:
    assert Judged(before).tell(Answered()) is Proof.ONLINE


@pytest.mark.parametrize("before", sorted(OUT))
def test_work_that_a_node_had_before_it_went_deaf_proves_nothing(before: Proof) -> None:
    assert Judged(before).tell(Answered(is_canary=False)) is before


def test_a_node_that_a_step_could_not_be_brought_to_is_asked_at_once() -> None:
    node = Judged()
    node.tell(Sent(), Answered())

    assert node.tell(Doubted(Proof.CUT_OFF)) is Proof.CUT_OFF
    assert _is_due(node)


def test_a_node_that_was_away_and_registers_is_asked_at_once_and_proven_by_its_answer_alone() -> None:
    node = Judged(Proof.ONLINE)
    node.miss(Place.DESERTED)

    assert node.tell(Returned()) is Proof.CUT_OFF
    assert _is_due(node)
    assert node.tell(Sent(), Answered()) is Proof.ONLINE


def test_a_busy_node_costs_no_canary_and_an_idle_one_costs_one_now_and_then() -> None:
    node = Judged()
    node.tell(Sent(), Answered())

    for _ in range(10):
        node.wait(EVERY_S - 1)
        assert not _is_due(node)
        node.tell(Answered(is_canary=False))

    node.wait(EVERY_S)
    assert _is_due(node)


def test_a_canary_is_sent_again_soon_where_somebody_listens_and_as_ever_where_nobody_does() -> None:
    listened, deserted = Judged(Proof.ONLINE), Judged(Proof.ONLINE)
    listened.miss(Place.HEARD)
    deserted.miss(Place.DESERTED)

    assert next_s(listened.view) == listened.now_s - ANSWER_WITHIN_S + AGAIN_S
    assert next_s(deserted.view) == deserted.now_s - ANSWER_WITHIN_S + EVERY_S


# --- Whatever happens in whatever order -------------------------------------------------------------------

_missed = st.builds(Missed, place=st.sampled_from(Place), is_full=st.booleans(), shows_life=st.booleans())
_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Answered, is_canary=st.booleans()),
    st.builds(Sent),
    st.builds(NotSent),
    _missed,
    st.builds(Doubted, proof=st.sampled_from(sorted(OUT))),
    st.builds(Returned),
    st.builds(Ticked),
)
_stories = st.lists(st.tuples(st.floats(0, 100), _events))


@given(story=_stories)
def test_any_order_of_events_gives_a_named_verdict_and_a_next_canary(story: list[tuple[float, Event]]) -> None:
    node = Judged()
    for seconds, event in story:
        node.now_s += seconds
        node.tell(event)

        assert node.view.proof in Proof
        due_s = next_s(node.view)
        assert (due_s is None) == node.view.is_out == (overdue_s(node.view) is not None)
        assert due_s is None or due_s <= node.now_s + EVERY_S


@given(story=_stories)
def test_whatever_came_before_an_answered_canary_makes_a_node_online(story: list[tuple[float, Event]]) -> None:
    node = Judged()
    for seconds, event in story:
        node.now_s += seconds
        node.tell(event)

    assert node.tell(Answered()) is Proof.ONLINE


@given(story=_stories)
def test_a_node_that_answers_nothing_is_never_online(story: list[tuple[float, Event]]) -> None:
    node = Judged()
    for seconds, event in story:
        node.now_s += seconds
        if not isinstance(event, Answered):
            assert node.tell(event) is not Proof.ONLINE


def _is_due(node: Judged) -> bool:
    due_s = next_s(node.view)
    return due_s is not None and due_s <= node.now_s
