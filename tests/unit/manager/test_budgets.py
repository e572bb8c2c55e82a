"""Whose link budget is used up gets no work: it goes to others, or waits, until there is room again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from tests.unit.manager.words import RESIZE, circuit, node

from canoa.execution.link_budget import parse_budget
from canoa.execution.placement import Placement
from canoa.execution.step_moves import Need
from canoa.manager.budgets import Budgets, Spent
from canoa.manager.catalogue import Catalogue
from canoa.manager.explaining import explained
from canoa.manager.following import Changed
from canoa.manager.links import Links
from canoa.manager.node_settings import NodeSettings
from canoa.manager.router import Router
from canoa.manager.routing.strategies import Strategies
from canoa.manager.watching import Watching
from canoa.testing import VirtualClock
from canoa.vocabulary import AMQP, Layer, NodeId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

KILO = "1kB/min"


class Site:
    """One manager, and what it would do."""

    def __init__(self, *rows: NodeRow, **layers: str) -> None:
        self.clock = VirtualClock()
        by_layer = {Layer(name): parse_budget(name, text) for name, text in layers.items()}
        self.budgets = Budgets(by_layer, self.clock)
        self.catalogue = Catalogue(
            NodeSettings(), self.clock, on_taken=lambda row, _: self.budgets.know(row), on_forgotten=self.budgets.forget
        )
        self.links = Links(self.catalogue.rows, self.budgets)
        self.strategies = Strategies()
        self.router = Router(
            self.catalogue,
            self.strategies,
            settings=self.catalogue.settings.breaker,
            watching=Watching(self.clock),
            note=lambda _: None,
            budgets=self.budgets,
        )
        self.catalogue.take(rows)

    def chosen(self, *, times: int = 4, **asked: Any) -> list[str | None]:
        choices = [self.router.choose(Need(RESIZE, self.catalogue.now_ms(), **asked)) for _ in range(times)]
        return [None if each is None else each.node_id for each in choices]

    def travelled(self, name: str, size_bytes: int, *, held_bytes: int = 0) -> None:
        self.links.sent(self.row(name), AMQP, size_bytes, held_bytes=held_bytes)

    def row(self, name: str) -> NodeRow:
        return self.catalogue.rows[NodeId(name)]

    def told(self) -> dict[str, str]:
        found = explained(self.catalogue, self.strategies, self.router, Need(RESIZE, self.catalogue.now_ms()))
        return {each.node_id: each.ruled_out for each in found.considered}


def test_work_goes_to_others_while_a_nodes_budget_is_used_up_and_comes_back() -> None:
    site = Site(node("a", link_budget=KILO), node("b"))

    site.travelled("a", 1000)
    assert set(site.chosen()) == {"b"}

    site.clock.advance(63)
    assert set(site.chosen()) == {"a", "b"}


def test_a_budget_that_a_node_says_only_later_counts_from_then_on() -> None:
    site = Site(node("a"), node("b"))
    assert set(site.chosen()) == {"a", "b"}

    site.catalogue.take([replace(site.row("a"), link_budget=KILO, version=9)])
    site.travelled("a", 1000)

    assert set(site.chosen()) == {"b"}


def test_work_that_nobody_else_can_do_waits() -> None:
    site = Site(node("a", link_budget=KILO))

    site.travelled("a", 1000)

    assert site.chosen(times=1) == [None]
    assert site.chosen(times=1, avoid=frozenset({NodeId("a")})) == [None]  # also where it had it before


def test_what_rules_it_out_is_explained_and_shown() -> None:
    site = Site(node("a", link_budget=KILO), node("b"))

    site.travelled("a", 1000)

    why = site.told()["a"]
    assert why.startswith("its link budget of 1kB/min is used up, for 6")
    assert site.told()["b"] == ""
    assert site.links.use(site.row("a")) == (1000, 0, why)
    assert site.links.use(site.row("b")).over_why == ""


def test_all_nodes_of_a_layer_share_its_budget() -> None:
    site = Site(node("a"), node("b"), node("c", layer=Layer.CLOUD), FOG=KILO)

    site.travelled("a", 600)
    assert set(site.chosen(times=6)) == {"a", "b", "c"}

    site.travelled("b", 600)
    assert set(site.chosen(times=6)) == {"c"}
    assert site.told()["b"].startswith("its layer's link budget of 1kB/min is used up")


def test_a_layer_that_has_none_left_is_passed_over_by_the_placement() -> None:
    limits = {RESIZE: ActionLimits(placement=Placement(layers=(Layer.FOG, Layer.CLOUD)))}
    site = Site(node("fog", limits=limits, link_budget=KILO), node("cloud", layer=Layer.CLOUD, limits=limits))
    assert set(site.chosen()) == {"fog"}

    site.travelled("fog", 1000)

    assert set(site.chosen()) == {"cloud"}


def test_a_trial_does_not_go_past_a_budget() -> None:
    site = Site(node("a", link_budget=KILO))
    site.catalogue.take_breakers([circuit("a", down_until_ms=1)])

    site.travelled("a", 1000)

    assert site.chosen(times=1) == [None]
    assert "link budget" in site.told()["a"]


def test_of_many_that_ask_at_once_only_as_many_find_room_as_there_is() -> None:
    site = Site(node("a", link_budget=KILO))

    assert site.chosen(times=5, size_bytes=300) == ["a", "a", "a", None, None]

    for _ in range(3):
        site.travelled("a", 100, held_bytes=480)  # they were compressed, and left
    assert site.chosen(times=1, size_bytes=300) == ["a"]


def test_what_could_not_be_sent_costs_nothing() -> None:
    site = Site(node("a", link_budget=KILO))
    assert site.chosen(times=2, size_bytes=1000) == ["a", None]

    site.travelled("a", 0, held_bytes=1150)

    assert site.chosen(times=1, size_bytes=1000) == ["a"]
    assert site.links.use(site.row("a")).out_bytes == 0


def test_what_other_managers_counted_counts_here() -> None:
    one, other = (Site(node("a", link_budget=KILO), node("b"), FOG="1MB/h") for _ in range(2))

    one.travelled("a", 1000)
    one.travelled("b", 10)
    told = one.budgets.take_untold()
    assert told == Spent({NodeId("a"): 1000}, {Layer.FOG: 1010})
    other.budgets.others_spent(told)

    assert set(other.chosen()) == {"b"}
    assert one.budgets.take_untold() is None
    assert other.budgets.take_untold() is None  # it is not told back


def test_what_managers_tell_each_other_is_read_as_it_was_written() -> None:
    told = Changed(manager="m-1", spent={NodeId("a"): 1000}, layers_spent={Layer.FOG: 1010})

    assert msgspec.json.decode(msgspec.json.encode(told), type=Changed) == told


def test_a_node_that_registers_without_its_budget_has_none_any_more() -> None:
    site = Site(node("a", link_budget=KILO))
    site.travelled("a", 1000)

    site.catalogue.take([node("a", version=2)])

    assert site.chosen(times=1) == ["a"]
    assert not site.budgets.is_limiting


def test_an_unchanged_registration_gives_nothing_back() -> None:
    site = Site(node("a", link_budget=KILO))
    site.travelled("a", 1000)

    site.catalogue.take([node("a", link_budget=KILO, load=0.5, version=2)])

    assert site.chosen(times=1) == [None]


def test_without_budgets_nothing_is_ruled_out_however_much_travels() -> None:
    site = Site(node("a"))

    site.travelled("a", 10**12)

    assert site.chosen(times=1) == ["a"]
    assert site.links.totals() == {("FOG", AMQP, "out"): 10**12, ("FOG", AMQP, "in"): 0}


def test_what_travelled_to_a_node_that_stands_elsewhere_since_counts_for_its_old_layer() -> None:
    site = Site(node("a"))
    site.travelled("a", 10)

    site.catalogue.take([node("a", layer=Layer.EDGE, version=2)])
    site.travelled("a", 5)

    assert site.links.use(site.row("a")).out_bytes == 15
    assert {layer: size for (layer, _, way), size in site.links.totals().items() if way == "out"} == {
        "FOG": 10,
        "EDGE": 5,
    }
