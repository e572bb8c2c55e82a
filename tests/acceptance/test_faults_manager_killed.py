"""Managers killed with SIGKILL: alone with a thousand tasks in flight, and one of two again and again."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.foreign_node import linked
from tests.acceptance.plant import Plant, has_counted, until_true

from canoa.broker import topology
from canoa.broker.port import Binding, Queue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.broker.port import Broker, Delivery

IN_FLIGHT = 1_000
SOME_MORE = 300
"""What may have ended when the manager is killed."""
BRAIDS = 100
REGISTRATIONS = "canoa_registrations_total"
REGISTERED_WITHIN_S = 15.0
KILLS = 20


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def test_a_manager_killed_with_a_thousand_tasks_in_flight_leaves_none_without_its_one_result(
    tmp_path: Path, rabbit: Rabbit, kind: str, request: pytest.FixtureRequest
) -> None:
    store_url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    async with Plant(tmp_path, rabbit, store_url) as plant:
        manager = await plant.manager()
        await asyncio.gather(plant.node("gw-1"), plant.node("gw-2"))
        handles, braids = await asyncio.gather(
            plant.submit(IN_FLIGHT + SOME_MORE, seconds=0.5), plant.submit_braids(BRAIDS)
        )
        await handles[0].result(30)

        manager.kill()
        assert sum(not handle.is_done for handle in handles) >= IN_FLIGHT
        assert not all(braid.is_done for braid in braids)
        await plant.manager()

        await plant.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
async def test_nodes_are_registered_again_within_fifteen_seconds_of_a_managers_return(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant, linked(plant.app) as broker:
        manager = await plant.manager()
        await asyncio.gather(plant.node("gw-1"), plant.node("gw-2"))
        manager.kill()
        came = await _registrations(broker)

        successor = await plant.manager()

        async def are_registered() -> bool:
            names = list(came)
            return set(names) == {"gw-1", "gw-2"} and await has_counted(successor, REGISTRATIONS, len(names))

        await until_true(are_registered, REGISTERED_WITHIN_S)
        await plant.some_results()


async def _registrations(broker: Broker) -> list[str]:
    """The nodes whose registrations come from now on, in their order."""
    came: list[str] = []

    def take(delivery: Delivery) -> None:
        came.append(json.loads(delivery.message.body)["nodeId"])
        delivery.settle()

    bound = Binding(queue="tap", exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER)
    await broker.consume("tap", take, prefetch=100, topology=[Queue(name="tap"), bound])
    return came


@pytest.mark.rabbitmq
@pytest.mark.postgres
@pytest.mark.timeout(300)  # half a minute of kills; longer on a machine that has other things to do
async def test_of_two_managers_on_one_store_either_may_be_killed_again_and_again(
    tmp_path: Path, rabbit: Rabbit, postgres_url: str
) -> None:
    async with Plant(tmp_path, rabbit, postgres_url) as plant:
        managers = [await plant.manager(), await plant.manager()]
        await plant.node("gw-1")

        async with plant.load(pause_s=0.2):
            for kill in range(KILLS):
                await plant.ready(managers[kill % 2])
                await asyncio.sleep(random.uniform(0, 0.3))
                managers[kill % 2].kill()
                managers[kill % 2] = plant.start_manager()

        await plant.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
async def test_with_no_manager_alive_tasks_are_accepted_and_run_by_the_next(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        await plant.node("gw-1")
        manager.kill()
        await plant.submit(50)

        await plant.manager()

        await plant.everything_is_recorded_once_and_nothing_is_left()
