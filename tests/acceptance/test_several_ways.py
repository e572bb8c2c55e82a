"""One worker with a broker, an MQTT broker and an address: each of them may fail, and its work goes on by the next."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true
from tests.acceptance.stream import Stream, node_view, until_shown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.testing import MosquittoNode
    from canoa.testing.pytest_plugin import ProxyFactory

pytestmark = pytest.mark.rabbitmq

ALL_WAYS = "AMQP+MQTT+HTTP"


async def gateway(plant: Plant, manager: Process, *args: str, layer: str = "fog", **env: str) -> Process:
    """A worker with an address besides whatever else it is given."""
    (ready,) = [event for event in manager.events() if event["event"] == "api_ready"]
    ways = ["--http", "127.0.0.1:0", "--manager", ready["url"]]
    return await plant.node("gw-1", "--layer", layer, *ways, *args, **env)


async def test_while_brokers_are_away_work_goes_on_by_the_next_way_and_every_task_runs_and_ends_once(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        worker = await gateway(plant, manager, "--mqtt", mosquitto.url)
        await until_shown(manager, protocol=ALL_WAYS, way="AMQP", closed=[])
        stream = Stream(manager, tmp_path)

        async with stream.flowing():
            await stream.goes_by("AMQP")
            await asyncio.to_thread(rabbit.node.kill)
            await stream.goes_by("MQTT")
            await asyncio.to_thread(mosquitto.kill)
            await stream.goes_by("HTTP")
            assert (await node_view(manager))["protocol"] == ALL_WAYS
            await asyncio.to_thread(rabbit.node.start)
            await asyncio.to_thread(mosquitto.start)
            await stream.goes_by("AMQP")

        stream.every_task_ended_well()
        stream.every_task_ran_once()
        await plant.every_task_has_one_end(frozenset(stream.task_ids.values()))
        from_the_pool = await plant.app.submit_raw("plant.double", b'{"number": 21}')
        assert await from_the_pool.result(WITHIN_S) == 42
        await until_shown(manager, protocol=ALL_WAYS, way="AMQP", closed=[], state="here", proof="online")
        assert worker.is_alive
        assert manager.is_alive

        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        await until_shown(manager, state="left", within_s=5)


async def test_at_the_edge_work_goes_by_topic_and_by_address_while_mosquitto_is_stopped_and_each_task_runs_once(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        by_mqtt = ["--mqtt", mosquitto.url]
        worker = await gateway(plant, manager, *by_mqtt, layer="edge", CANOA_BROKER="memory://")
        await until_shown(manager, protocol="MQTT+HTTP", way="MQTT", layer="EDGE", closed=[])
        stream = Stream(manager, tmp_path)

        async with stream.flowing():
            await stream.goes_by("MQTT")
            await asyncio.to_thread(mosquitto.stop)
            await stream.goes_by("HTTP")
            assert (await node_view(manager))["protocol"] == "MQTT+HTTP"
            await asyncio.to_thread(mosquitto.start)
            await stream.goes_by("MQTT")

        stream.every_task_ended_well()
        stream.every_task_ran_once()
        await plant.every_task_has_one_end(frozenset(stream.task_ids.values()))
        assert worker.is_alive


async def test_what_waits_at_the_broker_for_a_node_that_is_cut_off_from_it_goes_by_the_next_way_and_runs_once(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode, tcp_proxy: ProxyFactory
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        proxy = await tcp_proxy(rabbit.url)
        one_by_one = ["--concurrency", "1", "--mqtt", mosquitto.url]
        await gateway(plant, manager, *one_by_one, CANOA_BROKER=proxy.via(rabbit.url))
        await until_shown(manager, protocol=ALL_WAYS, closed=[])
        stream = Stream(manager, tmp_path)
        numbers = [await stream.begin(seconds=0.05) for _ in range(40)]

        proxy.cut()
        async with asyncio.timeout(15):  # less than any time limit
            for number in numbers:
                await stream.end(number)

        stream.every_task_ended_well()
        stream.every_task_ran_once()
        assert (await node_view(manager))["closed"] == ["AMQP"]
        assert await stream.sent_bytes("MQTT") > 0
        proxy.restore()
        await until_shown(manager, way="AMQP", closed=[], state="here")


async def test_the_end_of_its_mqtt_link_closes_that_way_alone(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode, tcp_proxy: ProxyFactory
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        proxy = await tcp_proxy(mosquitto.url)
        await gateway(plant, manager, "--mqtt", proxy.via(mosquitto.url))
        await until_shown(manager, protocol=ALL_WAYS, closed=[])
        stream = Stream(manager, tmp_path)

        async with stream.flowing():
            proxy.cut()
            await until_shown(manager, closed=["MQTT"], state="here")
            await stream.goes_by("AMQP")
            proxy.restore()
            await until_shown(manager, closed=[], state="here")

        assert "node_left" not in manager.said
        stream.every_task_ended_well()
        stream.every_task_ran_once()


async def test_a_killed_worker_with_a_topic_and_an_address_is_gone_within_seconds_and_its_work_goes_elsewhere(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        worker = await gateway(plant, manager, "--mqtt", mosquitto.url, CANOA_BROKER="memory://")
        await until_shown(manager, protocol="MQTT+HTTP", way="MQTT")
        handle = await plant.begin("hold", folder=str(tmp_path))
        await until_true(lambda: asyncio.to_thread((tmp_path / "gw-1").exists))
        await plant.node("other")

        worker.kill()
        await until_shown(manager, closed=["MQTT"], within_s=5)
        (tmp_path / "release").touch()

        assert await handle.result(20) == "other"


async def test_an_id_of_several_ways_is_one_nodes_a_second_one_is_kept_out_and_a_successor_let_in(
    tmp_path: Path, rabbit: Rabbit, mosquitto: MosquittoNode
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager(CANOA_MQTT=mosquitto.url)
        (ready,) = [event for event in manager.events() if event["event"] == "api_ready"]
        first = await gateway(plant, manager, "--mqtt", mosquitto.url)
        await until_shown(manager, protocol=ALL_WAYS, closed=[])

        by_two = ["--mqtt", mosquitto.url, "--manager", ready["url"]]
        rival = plant.start_node("gw-1", *by_two, CANOA_BROKER="memory://")

        assert await asyncio.to_thread(rival.wait) == 1
        assert "node_id_taken" in rival.said
        await until_shown(manager, protocol=ALL_WAYS, way="AMQP", closed=[], state="here")
        [handle] = await plant.submit(1)
        assert await handle.result(WITHIN_S) == 0

        first.kill()
        second = await gateway(plant, manager, "--mqtt", mosquitto.url)

        await until_shown(manager, protocol=ALL_WAYS, way="AMQP", closed=[], state="here")
        assert second.is_alive
        [handle] = await plant.submit(1)
        assert await handle.result(WITHIN_S) == 2
