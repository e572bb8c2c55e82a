"""When a node registers: whatever happens in whatever order, often enough to be known and never in floods."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from canoa.worker.registration import (
    BACK_OFF_S,
    COALESCE_S,
    SILENCE_S,
    Acknowledged,
    Event,
    Heard,
    Polled,
    Register,
    Renewed,
    State,
    Ticked,
    View,
    due_s,
    on,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FORCED, UNFORCED = Register(is_forced=True), Register(is_forced=False)


class Told:
    """A node that is told events; time passes as its own timer would see it."""

    def __init__(self) -> None:
        self.view = View()
        self.now_s = 100.0
        self.sent: list[tuple[float, Register]] = []

    def tell(self, *events: Event) -> list[Register]:
        """What these events lead to at once."""
        before = len(self.sent)
        for event in events:
            self._feed(event)
        return [register for _, register in self.sent[before:]]

    def wait(self, seconds: float) -> list[Register]:
        """What follows from time alone."""
        before, until_s = len(self.sent), self.now_s + seconds
        while (due := due_s(self.view)) is not None and due <= until_s:
            before_view, self.now_s = self.view, max(due, self.now_s)
            self._feed(Ticked())
            assert self.view != before_view, "a timer without effect fires for ever"
        self.now_s = until_s
        return [register for _, register in self.sent[before:]]

    def _feed(self, event: Event) -> None:
        self.view, register = on(self.view, event, self.now_s)
        if register is not None:
            self.sent.append((self.now_s, register))


def registered() -> Told:
    node = Told()
    node.tell(Renewed(), Acknowledged())
    node.wait(COALESCE_S)
    return node


def test_it_registers_when_it_connects_and_is_registered_once_acknowledged() -> None:
    node = Told()
    states = [node.view.state]

    assert node.tell(Renewed()) == [FORCED]
    states.append(node.view.state)
    assert node.tell(Acknowledged()) == []
    states.append(node.view.state)

    assert states == [State.NOT_REGISTERED, State.REGISTERING, State.REGISTERED]


def test_where_no_manager_is_heard_nothing_happens_ever_after() -> None:
    node = Told()
    node.tell(Renewed())

    assert due_s(node.view) is None
    assert node.wait(86_400) == []


def test_a_plain_heartbeat_asks_nothing_of_a_registered_node() -> None:
    assert registered().tell(Heard(1), Heard(2)) == []


def test_a_forced_heartbeat_registers_once_however_often_it_comes() -> None:
    node = registered()

    assert node.tell(*[Heard(1, is_forced=True)] * 5) == [FORCED]
    assert node.wait(COALESCE_S) == []


def test_the_first_heartbeat_ever_tells_that_a_manager_came() -> None:
    node = Told()
    node.tell(Renewed())
    node.wait(3600)

    assert node.tell(Heard(1)) == [FORCED]


def test_silence_ends_a_registration_and_the_next_heartbeat_renews_it() -> None:
    node = registered()
    node.wait(SILENCE_S)

    assert node.view.state is State.NOT_REGISTERED
    assert node.tell(Heard(7)) == [FORCED]


def test_a_manager_that_hears_and_does_not_acknowledge_is_asked_every_ten_seconds() -> None:
    node = Told()
    node.tell(Renewed(), Heard(0))
    node.wait(COALESCE_S)
    sent: list[Register] = []
    for second in range(1, 31):
        sent += node.tell(Heard(second))
        sent += node.wait(1)

    assert sent == [UNFORCED] * 3


def test_a_manager_that_falls_and_rises_is_registered_with_at_once() -> None:
    node = registered()

    assert node.tell(Polled(True), Polled(False)) == []
    assert node.view.state is State.NOT_REGISTERED
    assert node.tell(Polled(False), Polled(True)) == [FORCED]


def test_a_wrong_address_of_the_manager_undoes_nothing() -> None:
    node = registered()
    for second in range(60):
        assert node.tell(Polled(False), *([Heard(second)] if second % 5 == 0 else [])) == []
        node.wait(1)

    assert node.view.state is State.REGISTERED


def test_a_cut_link_makes_it_register_again() -> None:
    node = registered()

    assert node.tell(Renewed()) == [FORCED]
    assert node.view.state is State.REGISTERING


events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Renewed),
    st.builds(Heard, ts=st.integers(0, 3), is_forced=st.booleans()),
    st.builds(Acknowledged),
    st.builds(Polled, is_up=st.booleans()),
)
lives = st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0, 4.0, 12.0, 40.0]), events), max_size=40)


def lived(life: Sequence[tuple[float, Event]]) -> Told:
    node = Told()
    for seconds, event in life:
        node.wait(seconds)
        node.tell(event)
    return node


@given(lives)
def test_registrations_are_a_second_apart_and_unforced_ones_ten(life: Sequence[tuple[float, Event]]) -> None:
    sent = lived(life).sent

    for (before_s, _), (at_s, register) in pairwise(sent):
        assert at_s >= before_s + (COALESCE_S if register.is_forced else BACK_OFF_S)  # a difference may round otherwise


@given(lives, st.sampled_from([Renewed(), Heard(99, is_forced=True)]))
def test_whoever_asks_for_a_registration_gets_one_within_a_second(
    life: Sequence[tuple[float, Event]], asked: Event
) -> None:
    node = lived(life)
    before = len(node.sent)
    node.tell(asked)
    node.wait(COALESCE_S)

    assert FORCED in [register for _, register in node.sent[before:]]


@given(lives, events)
def test_the_same_heartbeat_again_changes_nothing(life: Sequence[tuple[float, Event]], last: Event) -> None:
    node = lived([*life, (0.0, last)])
    if isinstance(last, Heard):
        before = node.view

        assert node.tell(last) == []
        assert node.view == before


@given(lives)
def test_left_alone_it_falls_silent(life: Sequence[tuple[float, Event]]) -> None:
    node = lived(life)
    node.wait(SILENCE_S + BACK_OFF_S)

    assert due_s(node.view) is None
    assert node.wait(86_400) == []


@given(lives)
def test_registered_means_that_a_manager_was_heard_of_late(life: Sequence[tuple[float, Event]]) -> None:
    view = lived(life).view

    if view.state is State.REGISTERED:
        assert view.heard_s is not None
