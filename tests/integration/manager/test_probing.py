"""Nodes that are gone while work is out to them are found by their queue, and their work goes to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.test_nodes_life import registered, state
from tests.integration.manager.test_registering import GW, chosen

from canoa.manager import probing
from canoa.manager.catalogue import Presence
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.manager.nodes import Nodes


async def test_the_work_of_a_killed_worker_is_lost_to_it_and_it_gets_no_more(town: Town) -> None:
    manager = await town.start_manager()
    worker = await town.listen(GW)
    await registered(town, instance="i1")
    await town.send_step(manager)

    await worker.cancel()

    await town.until(lambda: town.lost)
    assert town.lost == [(GW, "nobody listens on its queue")]
    assert state(manager) == Presence.LEFT
    assert chosen(manager) is None


async def test_a_node_that_was_given_up_is_back_with_its_next_registration(town: Town) -> None:
    manager = await town.start_manager()
    await registered(town, instance="i1")
    await town.send_step(manager)
    await town.until(lambda: town.lost)

    await town.register(instance="i1")

    await town.until(lambda: chosen(manager) == GW)
    assert town.lost == [(GW, "its queue does not exist")]


async def test_a_worker_that_listens_keeps_its_work_however_long_that_takes(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await town.listen(GW)
    await registered(town, instance="i1")
    await town.send_step(manager)

    for _ in range(5):
        await manager.prober.look()

    assert town.lost == []
    assert chosen(manager) == GW


async def test_a_foreign_node_with_another_queue_is_not_judged_by_one_it_never_had(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await registered(town)
    await town.send_step(manager)

    for _ in range(5):
        await manager.prober.look()

    assert town.lost == []


async def test_a_foreign_node_with_a_queue_of_its_own_is_there_as_long_as_that(town: Town) -> None:
    manager = await town.start_manager()
    await town.listen(GW, exclusive=True)
    await registered(town, instance="i1")
    await town.send_step(manager)

    for _ in range(5):
        await manager.prober.look()

    assert town.lost == []


@pytest.mark.parametrize("way", [sapparchi.BY_MQTT, sapparchi.BY_MQTT_LINK])
async def test_a_worker_on_mqtt_keeps_its_work_since_nobody_can_see_who_listens_there(
    memory_town: Town, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(probing, "LOOK_EVERY_S", 0.01)
    town = memory_town
    manager = await town.start_manager()
    await town.register(instance="i1", endpoint="", headers={way: True})
    await town.until(town.acks)
    await town.send_step(manager)
    await town.until(lambda: is_looked_at(manager))  # it works, and says nothing meanwhile

    for _ in range(3):
        await manager.prober.look()

    assert town.lost == []
    assert chosen(manager) == GW


def is_looked_at(manager: Nodes) -> bool:
    catalogue = manager.catalogue
    return catalogue.signs.age_s(GW, catalogue.clock.monotonic_s()) > probing.LOOK_EVERY_S


async def test_of_two_managers_one_looks(memory_town: Town) -> None:
    town = memory_town
    first, second = [await town.start_manager() for _ in range(2)]
    await registered(town, instance="i1")
    await town.until(lambda: chosen(first) == chosen(second) == GW)
    await town.send_step(first)

    await town.until(lambda: town.lost)

    assert town.lost == [(GW, "its queue does not exist")]
