"""Every action is routed as it asks: the strategy is its own, and hears how its attempts went."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.manager.words import PRICE, RESIZE, circuit, node, written

from canoa.execution.step_moves import Need, Verdict
from canoa.manager.catalogue import Catalogue
from canoa.manager.node_settings import NodeSettings
from canoa.manager.router import Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.watching import Watching
from canoa.store.routed_port import Moved
from canoa.testing import VirtualClock
from canoa.vocabulary import NodeId, Routing
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.execution.step_moves import Choice
    from canoa.store.routed_port import NodeRow
    from canoa.vocabulary import ActionName

LEARNED = ActionLimits(routing="learned")


class Site:
    def __init__(self, *rows: NodeRow, default: Routing = Routing.ROUND_ROBIN) -> None:
        self.clock = VirtualClock()
        self.strategies = Strategies(default, seed=1)
        self.catalogue = Catalogue(NodeSettings(), self.clock, on_forgotten=self.strategies.forget)
        settings, watching = self.catalogue.settings.breaker, Watching(self.clock)
        self.router = Router(self.catalogue, self.strategies, settings=settings, watching=watching, note=lambda _: None)
        self.catalogue.take(rows)

    def choose(self, action: ActionName = RESIZE) -> Choice:
        choice = self.router.choose(Need(action, self.catalogue.now_ms()))
        assert choice is not None
        return choice

    def run(self, times: int, took_ms: dict[str, int], *, outcome: str = "ok") -> Counter[str]:
        """One after the other."""
        chosen: Counter[str] = Counter()
        for _ in range(times):
            choice = self.choose()
            chosen[choice.node_id] += 1
            took = took_ms[choice.node_id]
            self.clock.advance(took / 1000)
            self.answered(choice.node_id, took_ms=took, outcome=outcome, context=choice.context)
        return chosen

    def answered(self, name: str, *, took_ms: int, outcome: str = "ok", context: tuple[float, ...] = ()) -> None:
        moved = Moved(
            verdict=Verdict.TAKEN,
            node_id=NodeId(name),
            action=RESIZE,
            step_outcome=outcome,
            took_ms=took_ms,
            context=context,
        )
        self.router.ended(written(moved, self.catalogue.now_ms()))


def test_an_action_is_routed_as_its_node_says_and_others_as_the_manager_does() -> None:
    site = Site(node("a", RESIZE, PRICE, limits={RESIZE: LEARNED}), node("b", RESIZE, PRICE, limits={RESIZE: LEARNED}))

    assert site.choose(RESIZE).why.startswith("learned: ")
    assert site.choose(PRICE).why == "round robin over 2 nodes"


@pytest.mark.parametrize("said", ["", "by_horoscope"])
def test_what_a_manager_does_not_know_is_as_good_as_nothing(said: str) -> None:
    limits = {RESIZE: ActionLimits(routing=said)}
    site = Site(node("a", limits=limits), node("b", limits=limits), default=Routing.LEAST_LOADED)

    assert site.choose().why.startswith("least loaded of 2")


def test_where_nodes_differ_the_newest_is_believed() -> None:
    old = node("b", registered_ms=1, limits={RESIZE: ActionLimits(routing="power_of_two")})
    site = Site(old, node("a", registered_ms=2, limits={RESIZE: LEARNED}))

    assert site.choose().why.startswith("learned: ")


def test_the_ends_of_attempts_teach_the_next_choices() -> None:
    site = Site(*(node(name, limits={RESIZE: LEARNED}) for name in "abc"))
    times = {"a": 80, "b": 10, "c": 80}
    site.run(50, times)

    assert site.run(200, times)["b"] > 150


def test_what_is_out_goes_down_with_every_end() -> None:
    site = Site(node("a", limits={RESIZE: LEARNED}))
    site.run(10, {"a": 10})
    site.choose()

    assert site.strategies.traffic.out(site.choose().node_id, site.catalogue.now_ms()) == 2


def test_a_node_that_is_forgotten_is_forgotten_here_too() -> None:
    site = Site(node("a", limits={RESIZE: LEARNED}))
    site.run(10, {"a": 10})
    node_id = site.choose().node_id

    site.catalogue.drop([node_id])

    assert site.strategies.traffic.out(node_id, site.catalogue.now_ms()) == 0


# --- What is kept at hand for those who take turns yields to whatever else there is to think of -------------


def in_turns() -> Site:
    """Of which some have had their turn."""
    site = Site(node("a"), node("b"))
    assert {site.choose().node_id for _ in range(4)} == {"a", "b"}
    return site


def test_a_node_whose_circuit_opens_gets_nothing_more() -> None:
    site = in_turns()
    site.catalogue.take_breakers([circuit("a", down_until_ms=site.catalogue.now_ms() + 60_000)])

    assert {site.choose().node_id for _ in range(4)} == {"b"}


def test_a_node_that_is_full_gets_nothing_more() -> None:
    site = in_turns()
    site.router.inboxes.limit = 1
    site.router.inboxes.end_look({NodeId("a"): 1})

    assert site.choose().node_id == "b"


def test_what_is_out_is_counted_as_soon_as_somebody_looks() -> None:
    site = in_turns()
    site.strategies.is_counting = True

    chosen = site.choose().node_id

    assert site.strategies.traffic.out(chosen, site.catalogue.now_ms()) == 1


def test_a_node_that_joins_has_its_turn() -> None:
    site = in_turns()
    site.catalogue.take([node("c")])

    assert {site.choose().node_id for _ in range(3)} == {"a", "b", "c"}
    assert site.choose().why == "round robin over 3 nodes"


def test_what_is_decided_anew_is_not_out() -> None:
    site = Site(node("a", limits={RESIZE: LEARNED}))
    chosen = site.choose().node_id

    site.router.take_back(chosen, RESIZE, site.catalogue.now_ms())

    assert site.strategies.traffic.out(chosen, site.catalogue.now_ms()) == 0
    assert not site.router.inboxes._out[chosen]
