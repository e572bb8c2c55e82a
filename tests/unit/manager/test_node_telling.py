"""What onlookers hear of a node, from its rows and circuits, and from time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.manager.words import PRICE, RESIZE, circuit, node

from canoa.broker.events import Events
from canoa.broker.memory import MemoryBroker
from canoa.broker.memory_hub import MemoryHub
from canoa.execution.health import BreakerSettings
from canoa.execution.proof import Proof
from canoa.manager.catalogue import Catalogue
from canoa.manager.node_settings import NodeSettings
from canoa.manager.node_telling import NodeTelling, changes
from canoa.store.routed_port import HealthNoted, NodesPut
from canoa.testing.clock import VirtualClock
from canoa.vocabulary import AMQP, HTTP, Layer
from canoa.wire.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.store.routed_port import NodeRow

GW = node("gw-7", instance="i1", proof=Proof.ONLINE)
LEFT = msgspec.structs.replace(GW, actions=(), proof=Proof.UNPROVEN)


def but(**facts: Any) -> NodeRow:
    return msgspec.structs.replace(GW, **facts)


@pytest.mark.parametrize(
    ("before", "row", "told"),
    [
        (None, GW, [("node_joined", {"outcome": "new"})]),
        (LEFT, GW, [("node_joined", {"outcome": "back"})]),
        (GW, but(instance="i2", proof=Proof.UNPROVEN), [("node_joined", {"outcome": "back"})]),
        (GW, LEFT, [("node_left", {"outcome": "left"})]),
        (LEFT, LEFT, []),
        (None, LEFT, []),
        (GW, GW, []),
        (GW, but(load=0.9, seen_ms=7, registered_ms=7, version=9, token="t"), []),
        (but(instance=""), GW, []),
        (GW, but(actions=(RESIZE, PRICE)), [("node_changed", {"text": "actions"})]),
        (GW, but(layer=Layer.EDGE, site="natal"), [("node_changed", {"text": "layer, site"})]),
        (GW, but(ways=(AMQP, HTTP)), [("node_changed", {"text": "ways"})]),
        (but(ways=(AMQP, HTTP)), but(ways=(AMQP, HTTP), closed=(HTTP,)), [("node_changed", {"text": "ways"})]),
        (GW, but(proof=Proof.DEAF), [("node_proof", {"outcome": "deaf"})]),
        (but(proof=Proof.DEAD), GW, [("node_proof", {"outcome": "online"})]),
    ],
)
def test_of_a_row_that_is_written_what_it_changes_is_told(before: NodeRow | None, row: NodeRow, told: object) -> None:
    assert list(changes(before, row)) == told


class Onlooker:
    """One manager's telling, on a clock that stands still, and somebody who listens."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        settings = NodeSettings(silence_s=100, breaker=BreakerSettings(max_failures=3, down_ms=60_000))
        self.catalogue = Catalogue(settings, self.clock, on_taken=lambda *rows: self.telling.on_taken(*rows))
        self.events = Events(MemoryBroker(MemoryHub()), is_shared=False, on_progress=lambda _: None)
        self.is_leading = True
        self.telling = NodeTelling(self.events, self.catalogue, is_leading=lambda: self.is_leading)
        self._heard: list[Event] = []

    async def listen(self) -> None:
        async for event in self.events.listen():
            self._heard.append(event)

    async def heard(self) -> list[tuple[str, str | None, str | None]]:
        """Since the last time."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        heard, self._heard = self._heard, []
        return [(each.kind, each.outcome, each.text) for each in heard]

    def look(self) -> None:
        self.catalogue.look_for_silence()
        self.telling.look()

    def take(self, row: NodeRow) -> None:
        self.catalogue.take([msgspec.structs.replace(row, seen_ms=self.catalogue.now_ms())])


@pytest.fixture
async def onlooker() -> AsyncIterator[Onlooker]:
    onlooker = Onlooker()
    listening = asyncio.create_task(onlooker.listen())
    await asyncio.sleep(0)
    yield onlooker
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


async def test_a_node_that_falls_silent_and_is_heard_again_is_told_once_each(onlooker: Onlooker) -> None:
    onlooker.take(GW)
    onlooker.look()
    assert await onlooker.heard() == []

    onlooker.clock.advance(101)
    onlooker.look()
    onlooker.look()
    assert await onlooker.heard() == [("node_left", "silent", None)]

    onlooker.catalogue.heard(GW.node_id)
    onlooker.look()
    onlooker.look()
    assert await onlooker.heard() == [("node_joined", "back", None)]


async def test_a_silent_node_that_starts_again_is_back_by_the_word_of_whoever_wrote_it(onlooker: Onlooker) -> None:
    onlooker.take(GW)
    onlooker.clock.advance(101)
    onlooker.look()
    await onlooker.heard()

    onlooker.take(but(instance="i2", version=2))
    onlooker.look()

    assert await onlooker.heard() == []


async def test_a_silent_node_that_is_forgotten_is_not_back(onlooker: Onlooker) -> None:
    onlooker.take(GW)
    onlooker.clock.advance(101)
    onlooker.look()
    await onlooker.heard()

    onlooker.catalogue.drop([GW.node_id])
    onlooker.look()

    assert await onlooker.heard() == []


async def test_who_comes_to_lead_tells_only_what_is_new_from_then_on(onlooker: Onlooker) -> None:
    onlooker.is_leading = False
    onlooker.take(GW)
    onlooker.clock.advance(101)
    onlooker.look()

    onlooker.is_leading = True
    onlooker.look()

    assert await onlooker.heard() == []


def noted(failures: int, before: int, *, action: str = "", down_until_ms: int = 0) -> HealthNoted:
    row = circuit("gw-7", action=action, failures=failures, down_until_ms=down_until_ms)
    was = {(row.node_id, action): circuit("gw-7", action=action, failures=before)} if before else {}
    return HealthNoted([row], was)


async def test_health_is_told_when_it_changes_and_not_with_every_failure(onlooker: Onlooker) -> None:
    soon_ms = onlooker.catalogue.now_ms() + 60_000
    onlooker.telling.on_noted(noted(1, 0))
    onlooker.telling.on_noted(noted(2, 1))
    onlooker.telling.on_noted(noted(3, 2, down_until_ms=soon_ms))
    onlooker.telling.on_noted(noted(0, 3))
    onlooker.telling.on_noted(noted(1, 0, action=RESIZE))

    assert await onlooker.heard() == [
        ("node_health", "WARNING", None),
        ("node_health", "DOWN", None),
        ("node_health", "OK", None),
        ("node_health", "WARNING", "shop.resize"),
    ]


async def test_a_circuit_that_may_be_tried_again_is_told_once_by_who_leads(onlooker: Onlooker) -> None:
    onlooker.catalogue.take_breakers([circuit("gw-7", down_until_ms=onlooker.catalogue.now_ms() + 60_000)])
    onlooker.look()

    onlooker.clock.advance(61)
    onlooker.look()
    onlooker.look()

    assert await onlooker.heard() == [("node_health", "RECOVERING", None)]


async def test_a_circuit_that_closed_is_not_told_as_one_to_be_tried(onlooker: Onlooker) -> None:
    onlooker.catalogue.take_breakers([circuit("gw-7", down_until_ms=onlooker.catalogue.now_ms() + 60_000)])
    onlooker.look()

    onlooker.catalogue.take_breakers([circuit("gw-7", failures=0)])
    onlooker.look()

    assert await onlooker.heard() == []


async def test_why_a_node_is_gone_is_told_where_it_did_not_say_so(onlooker: Onlooker) -> None:
    onlooker.telling.on_put([LEFT], NodesPut(2, {GW.node_id: GW}), why="nobody listens")

    assert await onlooker.heard() == [("node_left", "left", "nobody listens")]


async def test_what_nobody_wants_to_hear_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    onlooker, told = Onlooker(), list[Event]()
    monkeypatch.setattr(onlooker.events, "tell", told.append)

    onlooker.telling.on_put([GW], NodesPut(1, {}))
    onlooker.telling.on_noted(noted(1, 0))
    onlooker.telling.on_plan("power-factor")

    assert told == []
