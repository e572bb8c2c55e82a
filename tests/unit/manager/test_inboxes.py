"""A node at which as many steps are out as may be gets no more, until it answers or they are nobody's any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.manager.words import RESIZE, node, written

from canoa.execution.placement import Placement
from canoa.execution.step_moves import Need, Verdict
from canoa.manager.catalogue import Catalogue
from canoa.manager.explaining import explained
from canoa.manager.inboxes import Inboxes
from canoa.manager.node_settings import NodeSettings
from canoa.manager.router import Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.watching import Watching
from canoa.store.routed_port import Moved
from canoa.testing import VirtualClock
from canoa.vocabulary import Layer, NodeId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

A, B = NodeId("a"), NodeId("b")
LIMIT = 3


class Site:
    """One manager, and what it would do."""

    def __init__(self, *rows: NodeRow) -> None:
        self.inboxes = Inboxes(LIMIT)
        self.strategies = Strategies()
        clock = VirtualClock()
        self.catalogue = Catalogue(NodeSettings(), clock)
        self.router = Router(
            self.catalogue,
            self.strategies,
            settings=self.catalogue.settings.breaker,
            watching=Watching(clock),
            note=lambda _: None,
            inboxes=self.inboxes,
        )
        self.catalogue.take(rows)

    def chosen(self, times: int = 1, **asked: Any) -> list[str | None]:
        choices = [self.router.choose(Need(RESIZE, self.catalogue.now_ms(), **asked)) for _ in range(times)]
        return [None if each is None else each.node_id for each in choices]

    def ended(self, node_id: NodeId, outcome: str) -> None:
        moved = Moved(verdict=Verdict.TAKEN, node_id=node_id, action=RESIZE, step_outcome=outcome)
        self.router.ended(written(moved, self.catalogue.now_ms()))

    def told(self) -> dict[str, str]:
        found = explained(self.catalogue, self.strategies, self.router, Need(RESIZE, self.catalogue.now_ms()))
        return {each.node_id: each.ruled_out for each in found.considered}


# --- Which node gets a step ----------------------------------------------------------------------------------


def test_what_is_too_much_for_one_goes_to_others_and_waits_where_there_are_none() -> None:
    site = Site(node("a"), node("b"))
    site.inboxes.end_look({A: LIMIT})

    assert site.chosen(4) == ["b", "b", "b", None]
    assert site.chosen(avoid=frozenset({A, B})) == [None]  # also where it had it before


def test_an_answer_a_loss_or_an_end_of_its_time_makes_room_for_one_more() -> None:
    site = Site(node("a"))
    assert site.chosen(LIMIT + 1)[-1] is None

    for outcome in ("ok", "failed", "lost", "timed-out", "returned"):
        site.ended(A, outcome)
        assert site.chosen(2) == ["a", None]


def test_what_was_called_off_makes_room() -> None:
    site = Site(node("a"))
    site.chosen(LIMIT)

    called_off = Moved(verdict=Verdict.TAKEN, freed=((A, RESIZE), (A, RESIZE)))
    site.router.ended(written(called_off, site.catalogue.now_ms()))

    assert site.chosen(3) == ["a", "a", None]


def test_a_move_that_ends_no_attempt_makes_none() -> None:
    site = Site(node("a"))
    site.chosen(LIMIT)

    site.router.ended(written(Moved(verdict=Verdict.LATE, node_id=A), site.catalogue.now_ms()))

    assert site.chosen() == [None]


def test_a_layer_whose_nodes_are_full_is_passed_over_by_the_placement() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(Layer.EDGE, Layer.CLOUD)))}
    site = Site(node("edge", layer=Layer.EDGE, limits=limits), node("cloud", layer=Layer.CLOUD, limits=limits))

    assert site.chosen(LIMIT + 1) == ["edge"] * LIMIT + ["cloud"]


def test_what_keeps_a_node_from_more_is_explained() -> None:
    site = Site(node("a"), node("b"))
    site.inboxes.end_look({A: LIMIT + 2})

    assert site.told() == {
        "b": "",
        "a": "full: 5 steps are out at it, of node_inbox=3; it gets more once it answers, or they expire",
    }


# --- Counting ------------------------------------------------------------------------------------------------


def test_the_store_says_what_others_sent_and_heard() -> None:
    inboxes = Inboxes(LIMIT)
    for _ in range(LIMIT):
        inboxes.sent(A)
    assert inboxes.full == {A}

    inboxes.begin_look()
    inboxes.end_look({A: 1, B: 7})

    assert inboxes.full == {B}


def test_what_changes_while_the_store_is_asked_counts_on() -> None:
    inboxes = Inboxes(LIMIT)

    inboxes.begin_look()
    inboxes.sent(A)
    inboxes.ended({B: 1})
    inboxes.end_look({A: LIMIT - 1, B: LIMIT})

    assert inboxes.full == {A}


def test_a_look_that_failed_leaves_no_trace() -> None:
    inboxes = Inboxes(LIMIT)
    inboxes.begin_look()
    inboxes.sent(A)  # and then the store was away

    inboxes.begin_look()
    inboxes.end_look({A: LIMIT - 1})

    assert inboxes.full == frozenset()


def test_who_has_a_fourth_of_what_it_may_have_is_looked_at_often() -> None:
    inboxes = Inboxes(8)
    inboxes.sent(A)
    assert not inboxes.is_near

    inboxes.sent(A)
    assert inboxes.is_near

    inboxes.ended({A: 1})
    assert not inboxes.is_near


def test_a_node_that_is_forgotten_is_not_full() -> None:
    inboxes = Inboxes(1)
    inboxes.sent(A)

    inboxes.forget(A)

    assert (inboxes.full, inboxes.why(A), inboxes.is_near) == (frozenset(), "", False)


@given(st.lists(st.sampled_from([(A, 1), (A, -1), (B, 1), (B, -1)]), max_size=60))
def test_alone_a_manager_is_never_mistaken_and_never_sends_more_than_so_many(changes: list[tuple[NodeId, int]]) -> None:
    inboxes, out = Inboxes(LIMIT), {A: 0, B: 0}
    for node_id, by in changes:
        if by > 0 and node_id not in inboxes.full:
            inboxes.sent(node_id)
            out[node_id] += 1
        elif by < 0 and out[node_id]:
            inboxes.ended({node_id: 1})
            out[node_id] -= 1
        assert max(out.values()) <= LIMIT
        assert inboxes.full == {each for each, count in out.items() if count == LIMIT}
