"""How tasks ended, told at an MQTT broker that knows nothing of the managers' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox
from tests.integration.dispatch.site import Site, eventually
from tests.integration.mqtt.device import Device
from tests.integration.mqtt.town import through_mosquitto, through_rabbitmq

from canoa.broker import topology
from canoa.broker.port import Binding, Queue
from canoa.errors import QueueMissing
from canoa.wire.topics import spellings

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.testing import MosquittoNode, RabbitNode

FINALS = topology.FINAL_RESULTS
MARK = "nothing comes after this"


async def test_of_several_managers_one_tells_each_end_once_in_each_spelling(
    rabbit_url: str, postgres_url: str, mosquitto: MosquittoNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_MQTT", mosquitto.url)
    town = through_mosquitto(rabbit_url, mosquitto)
    async with Site(rabbit_url, postgres_url) as site, town.ear(*spellings(FINALS)) as ear:
        managers = [await site.start_manager(), await site.start_manager()]
        for manager in managers:
            await eventually(lambda manager=manager: manager.manager.nodes.reaching.is_up("MQTT-LINK"))  # type: ignore[misc]  # mypy does not see the default
        await site.start_node("gw-1", managers[0], inc=lambda value: value + 1)

        ids = [await site.request("inc", data=number) for number in range(50)]
        assert [await site.result(each) for each in ids] == list(range(1, 51))
        await ear.hears(FINALS, 2 * len(ids))
        for _ in managers:
            await site.stop_manager()
        await town.say(FINALS, {"requestID": MARK})
        await ear.hears(FINALS, 2 * len(ids) + 1)

    told = ear.times(FINALS, "requestID")
    assert told == {(topic, each): 1 for topic in spellings(FINALS) for each in ids} | {(FINALS, MARK): 1}


async def test_what_ends_while_the_mqtt_broker_is_away_is_told_when_it_is_back(
    tmp_path: Path, mosquitto: MosquittoNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_MQTT", mosquitto.url)
    town = through_mosquitto("memory://", mosquitto)
    async with Site("memory://", f"sqlite:///{tmp_path}/canoa.db") as site:
        manager = await site.start_manager()
        await site.start_node("gw-1", manager, inc=lambda value: value + 1)
        async with town.ear(FINALS, session="desk"):
            pass  # from now on what comes waits for it
        mosquitto.stop()

        ids = [await site.request("inc", data=number) for number in range(3)]
        assert [await site.result(each) for each in ids] == [1, 2, 3]
        mosquitto.start()

        async with town.ear(FINALS, session="desk") as ear:
            await ear.hears(FINALS, len(ids))
    assert {each["requestID"] for each in ear.all(FINALS)} == set(ids)


async def test_whoever_asks_by_mqtt_cannot_have_managers_write_to_a_queue_of_their_broker(
    tmp_path: Path, mosquitto: MosquittoNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_MQTT", mosquitto.url)
    town = through_mosquitto("memory://", mosquitto)
    device = Device(town, "meter-1")
    async with Site("memory://", f"sqlite:///{tmp_path}/canoa.db") as site, device.listening():
        await site.broker.declare(Queue(name="private"))
        manager = await site.start_manager()
        await site.start_node("gw-1", manager, inc=lambda value: value + 1)
        await device.join()  # so managers listen

        good = {"id": "order-1", "target_actions": ["urn:sapparchi:Action:plant.inc"], "message_data": "1"}
        for count, request in enumerate([good, {"id": "order-2"}], start=1):
            await town.say(topology.TASK_REQUESTS, request, canoa_reply_to='"private"')
            await device.ear.hears(FINALS, count)

        assert (await site.broker.depth("private")).messages == 0


async def test_managers_without_an_mqtt_broker_keep_nothing_for_one(memory_site: Site) -> None:
    await memory_site.start_manager()

    with pytest.raises(QueueMissing):
        await memory_site.broker.depth(topology.MQTT_FINALS)


@pytest.mark.rabbitmq
async def test_what_is_told_by_the_plugin_of_the_managers_own_broker_does_not_go_round(
    tmp_path: Path, mqtt_node: RabbitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    vhost = mqtt_node.add_vhost()
    town = through_rabbitmq(mqtt_node, vhost)
    monkeypatch.setenv("CANOA_MQTT", town.mqtt_url)
    heard, queue = Inbox(), Queue(name="test.heard", expires_s=60)
    bound = Binding(exchange=topology.AMQ_TOPIC, queue=queue.name, key=FINALS)
    async with Site(town.broker_url, f"sqlite:///{tmp_path}/canoa.db") as site:
        await site.broker.consume(queue.name, heard, prefetch=1000, topology=[queue, bound])
        manager = await site.start_manager()
        await eventually(lambda: manager.manager.nodes.reaching.is_up("MQTT-LINK"))
        await site.start_node("gw-1", manager, inc=lambda value: value + 1)

        await site.result(await site.request("inc", data=1))
        await heard.take(3)  # its end, and what was told of it in both spellings, which are one here
        await eventually(lambda: _is_through(site))
        await site.stop_manager()

    assert heard.bodies == 3 * heard.bodies[:1]
    mqtt_node.release_vhost(vhost)


async def _is_through(site: Site) -> bool:
    """Nothing waits to be told."""
    return (await site.broker.depth(topology.MQTT_FINALS)).messages == 0
