"""Whoever looks on hears of each change of a node once, however many managers there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.integration.manager.test_nodes_life import ended, state
from tests.integration.manager.test_registering import GW
from tests.integration.manager.town import tell
from tests.unit.manager.words import registration

from canoa.clock import as_time
from canoa.execution.health import BreakerSettings, Health
from canoa.execution.proof import Proof
from canoa.manager.node_settings import NodeSettings
from canoa.wire.event import Event

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.manager.nodes import Nodes

Told = Counter[tuple[str, str | None, str | None, str | None]]


async def telling_managers(town: Town, count: int = 2, settings: NodeSettings | None = None) -> list[Nodes]:
    """That know of each other's onlookers."""
    managers = [await town.start_manager(settings, tells=True) for _ in range(count)]
    await town.until(lambda: all(len(each._others) == count - 1 for each in town.events))
    await town.until(lambda: all(each.are_wanted for each in town.events))
    return managers


async def heard(town: Town) -> Told:
    """By every onlooker the same, since the last time; all that was told before this was asked has come."""
    mark = Event(kind="mark", task_id="", action="", at=as_time(0))
    for events in town.events:
        events.tell(mark)
    everybody = len(town.events)
    await town.until(lambda: all([each.kind for each in told].count("mark") == everybody for told in town.onlookers))
    counted = [
        Counter((each.kind, each.node_id, each.outcome, each.text) for each in told if each.kind != "mark")
        for told in town.onlookers
    ]
    for told in town.onlookers:
        del told[:]
    assert counted == counted[:1] * everybody
    return counted[0]


async def settled(town: Town) -> None:
    await town.until(lambda: all(each.registrations._writing is None for each in town.managers))


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_each_change_is_told_once_by_two_managers(shared_town: Town) -> None:
    town = shared_town
    managers = await telling_managers(town)

    await town.register(instance="i1")
    await town.until(lambda: all(GW in each.catalogue.rows for each in managers))
    assert await heard(town) == Counter({("node_joined", GW, "new", None): 1})

    for _ in range(10):  # nothing new
        await town.register(instance="i1", forceRegister=True)
    await town.until(lambda: sum(each.registrations.taken for each in managers) == 11)
    await settled(town)
    assert await heard(town) == Counter()

    actions = ["urn:sapparchi:Action:shop.resize", "urn:sapparchi:Action:shop.price"]
    await town.register(instance="i1", actions=actions)
    await town.until(lambda: all(len(each.catalogue.rows[GW].actions) == 2 for each in managers))
    assert await heard(town) == Counter({("node_changed", GW, None, "actions"): 1})

    for manager in (*managers, managers[0]):
        tell(manager, ended("timed_out"))
    await town.until(lambda: {state(each) for each in managers} == {Health.DOWN})
    told = await heard(town)
    assert set(told.values()) == {1}
    assert {(outcome, text) for kind, _, outcome, text in told if kind == "node_health"} >= {
        ("DOWN", None),
        ("DOWN", "shop.resize"),
    }

    await town.register(instance="i1", actions=[])
    await town.until(lambda: not any(each.catalogue.rows[GW].actions for each in managers))
    assert await heard(town) == Counter({("node_left", GW, "left", None): 1})

    await town.register(instance="i2")
    await town.until(lambda: {state(each) for each in managers} == {Health.OK})
    told = await heard(town)
    assert told["node_joined", GW, "back", None] == 1
    assert told["node_health", GW, "OK", None] == 1
    assert set(told.values()) == {1}


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_a_flood_of_registrations_is_told_once_per_node(shared_town: Town) -> None:
    town, nodes, count = shared_town, 50, 10_000
    managers = await telling_managers(town)

    await town.publish(*(registration(f"n{number % nodes}", forceRegister=True) for number in range(count)))
    await town.until(lambda: sum(each.registrations.taken for each in managers) == count)
    await town.until(lambda: all(len(each.catalogue.rows) == nodes for each in managers))
    await settled(town)

    assert await heard(town) == Counter({("node_joined", f"n{number}", "new", None): 1 for number in range(nodes)})


async def test_a_proof_that_two_managers_write_at_once_is_told_once(memory_town: Town) -> None:
    town = memory_town
    first, second = await telling_managers(town)
    await town.register(instance="i1")
    await town.until(lambda: GW in first.catalogue.rows and GW in second.catalogue.rows)
    await heard(town)

    for proof in (Proof.ONLINE, Proof.DEAF, Proof.DEAF):  # found by both in the same moment
        row = msgspec.structs.replace(first.catalogue.rows[GW], proof=proof)
        await asyncio.gather(*(manager.follower.put([row]) for manager in (first, second)))

    assert await heard(town) == Counter({("node_proof", GW, "online", None): 1, ("node_proof", GW, "deaf", None): 1})


async def test_of_two_managers_that_find_a_node_silent_the_leading_one_tells(memory_town: Town) -> None:
    town = memory_town
    managers = await telling_managers(town, settings=NodeSettings(silence_s=0.5))
    await town.until(lambda: any(each.heart.is_leading for each in managers))
    await town.register()
    await town.until(lambda: any(told[-1:] and told[-1].outcome == "silent" for told in town.onlookers))
    await town.until(lambda: all(GW in each.catalogue.silent for each in managers))

    assert await heard(town) == Counter({("node_joined", GW, "new", None): 1, ("node_left", GW, "silent", None): 1})


async def test_a_circuit_that_may_be_tried_again_is_told_once(memory_town: Town) -> None:
    town = memory_town
    breaker = BreakerSettings(max_failures=1, down_ms=1500)
    managers = await telling_managers(town, settings=NodeSettings(breaker=breaker))
    await town.until(lambda: any(each.heart.is_leading for each in managers))
    await town.register()
    await town.until(lambda: all(GW in each.catalogue.rows for each in managers))
    await heard(town)

    tell(managers[0], ended("timed_out"))
    await town.until(lambda: all([each.outcome for each in told].count("RECOVERING") == 2 for told in town.onlookers))

    assert await heard(town) == Counter(
        {("node_health", GW, state, action): 1 for state in ("DOWN", "RECOVERING") for action in (None, "shop.resize")}
    )
