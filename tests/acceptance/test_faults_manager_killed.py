"""Managers killed with SIGKILL: alone with a thousand tasks in flight, and one of two again and again."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.foreign_node import ForeignNode, linked
from tests.acceptance.plant import HASTY, WITHIN_S, Plant, has_counted, until_true

from canoa.broker import topology
from canoa.broker.port import Binding, Queue
from canoa.clock import now_ms
from canoa.execution.step_moves import StepState
from canoa.manager import timers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.broker.port import Broker, Delivery
    from canoa.client.handle import Handle
    from canoa.store.routed_port import FullStore

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
@pytest.mark.parametrize("successor", ["started then", pytest.param("beside it", marks=pytest.mark.postgres)])
async def test_retries_and_time_limits_that_a_killed_manager_left_are_kept_by_another_one(
    tmp_path: Path, rabbit: Rabbit, successor: str, request: pytest.FixtureRequest
) -> None:
    """In a hurry, managers leave all but the nearest times to the one that holds the lease: that one is killed."""
    is_beside = successor == "beside it"
    store_url = request.getfixturevalue("postgres_url") if is_beside else None
    async with Plant(tmp_path, rabbit, store_url) as plant, linked(plant.app) as broker, plant.opened() as store:
        manager = await plant.hasty_manager(CANOA_STEP_TRAVEL_S="0.5")
        await until_true(lambda: _is_leased(store))
        if is_beside:
            await plant.hasty_manager(CANOA_STEP_TRAVEL_S="0.5")
        await plant.node("gw-1")
        silent = ForeignNode("silent", broker)
        await silent.join("plant.listen")
        await until_true(lambda: _is_known(plant, "silent"))
        stumbling = await plant.begin("stumble", number=40, more=2, times=2)
        await until_true(lambda: _waits_for_attempt(store, stumbling, 2))
        unanswered = await plant.begin("listen", timeout_s=3)
        await until_true(lambda: _waits_for_attempt(store, stumbling, 3))
        left = await store.holder(timers.LEASE)

        manager.kill()
        killed_ms = now_ms()
        silent.answer = '"heard"'
        if not is_beside:
            await plant.hasty_manager(CANOA_STEP_TRAVEL_S="0.5")

        assert (await stumbling.result(WITHIN_S), await unanswered.result(WITHIN_S)) == (42, "heard")
        attempts = [(await plant.steps(handle))[0].attempts for handle in (stumbling, unanswered)]
        assert [[each.outcome for each in made] for made in attempts] == [
            ["failed", "failed", "ok"],
            ["timed_out", "ok"],
        ]
        assert all(made[-1].sent_ms > killed_ms for made in attempts)
        assert (await store.holder(timers.LEASE)).epoch > left.epoch
        await plant.every_task_has_one_end({stumbling.id, unanswered.id})


async def _is_leased(store: FullStore) -> bool:
    return await store.holder(timers.LEASE) is not None


async def _is_known(plant: Plant, node_id: str) -> bool:
    return node_id in await plant.nodes()


async def _waits_for_attempt(store: FullStore, handle: Handle[Any], attempt: int) -> bool:
    steps = await store.steps(handle.id)  # none until a manager has taken it
    return [(each.state, len(each.attempts)) for each in steps] == [(StepState.WAITING, attempt - 1)]


@pytest.mark.rabbitmq
async def test_with_no_manager_alive_tasks_are_accepted_and_run_by_the_next(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        await plant.node("gw-1")
        manager.kill()
        await plant.submit(50)

        await plant.manager()

        await plant.everything_is_recorded_once_and_nothing_is_left()


@pytest.mark.rabbitmq
async def test_nodes_that_missed_their_managers_are_registered_within_fifteen_seconds_of_a_managers_return(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        nodes = await asyncio.gather(*(plant.node(name, program=HASTY) for name in ("gw-1", "gw-2")))
        manager.kill()
        await asyncio.gather(*(asyncio.to_thread(node.wait_logged, "managers_silent") for node in nodes))

        await plant.manager()

        await until_true(lambda: _are_registered_again(nodes), REGISTERED_WITHIN_S)
        await plant.submit(10)
        await plant.everything_is_recorded_once_and_nothing_is_left()


async def _are_registered_again(nodes: Sequence[Process]) -> bool:
    return all("node_registered" in node.said.rpartition("managers_silent")[2] for node in nodes)
