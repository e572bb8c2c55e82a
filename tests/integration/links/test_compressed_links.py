"""Inputs and outputs of steps travel compressed where the rule says so and the node reads it, and are counted so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.integration.dispatch.site import Site, eventually
from tests.integration.links.tap import NODE, TEXT, Tap, counted, echoing

from canoa import Canoa
from canoa.api.server import serving_api
from canoa.broker.mqtt_address import mqtt_address
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.cli.listening import listener, shown_url
from canoa.settings import Settings
from canoa.vocabulary import Layer
from canoa.wire.compression_policy import Compression, CompressionRule
from canoa.wire.packing import packed, unpack
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from canoa.broker.port import Delivery
    from canoa.testing import MosquittoNode

LIMIT = 100_000
TOKEN = "0123456789abcdef"


async def test_a_large_input_and_output_travel_compressed_and_the_counts_are_those_bytes(site: Site) -> None:
    echoing(site.app)
    manager = await site.start_manager()
    async with site.app.worker_with(WorkerSettings(node_id=NODE, layer=Layer.EDGE, drain_s=1)):
        await manager.manager.wait_known(site.app.actions, within_s=10)
        tap = Tap(site.broker)
        await tap.start()

        assert await site.result(await site.request("echo", data={"text": TEXT})) == TEXT

        sent, answer = await tap.message(), await tap.answer()
        assert (sent.content_encoding, answer.content_encoding) == ("zstd", "zstd")
        assert TEXT.encode() in unpack(sent, LIMIT)
        assert len(sent.body) < 1000
        await eventually(lambda: counted(manager, way="AMQP") == (len(sent.body), len(answer.body)))
        [shown] = [each for each in await manager.desk.routed.nodes() if each.id == NODE]
        assert (shown.sent_bytes, shown.received_bytes) == (len(sent.body), len(answer.body))


async def test_where_the_rule_starts_later_it_travels_plain(memory_site: Site) -> None:
    echoing(memory_site.app)
    manager = await memory_site.start_manager()
    async with memory_site.app.worker_with(WorkerSettings(node_id=NODE, layer=Layer.CLOUD, drain_s=1)):
        await manager.manager.wait_known(memory_site.app.actions, within_s=10)
        tap = Tap(memory_site.broker)
        await tap.start()

        await memory_site.result(await memory_site.request("echo", data={"text": TEXT[:5000]}))

        sent, answer = await tap.message(), await tap.answer()
    assert (sent.content_encoding, answer.content_encoding) == (None, None)
    await eventually(lambda: counted(manager, way="AMQP", layer="CLOUD") == (len(sent.body), len(answer.body)))


async def test_a_node_of_another_make_gets_everything_as_published_and_is_counted_too(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node(NODE, manager, echo=lambda given: given)
    tap = Tap(site.broker)
    await tap.start()

    assert await site.result(await site.request("echo", data=TEXT)) == TEXT

    sent, answer = await tap.message(), await tap.answer()
    assert sent.content_encoding is None
    assert len(sent.body) > len(TEXT)
    await eventually(lambda: counted(manager, way="AMQP", layer="CLOUD") == (len(sent.body), len(answer.body)))


# --- By other ways -----------------------------------------------------------------------------------------------


async def test_over_http_it_travels_compressed_both_ways(memory_site: Site) -> None:
    manager = await memory_site.start_manager()
    listening = listener("127.0.0.1", 0)
    app = echoing(Canoa("plant", broker="memory://"))
    settings = WorkerSettings(
        node_id=NODE, layer=Layer.EDGE, http="127.0.0.1:0", manager_url=shown_url(listening), drain_s=1
    )
    async with serving_api(memory_site.app, listening, token=TOKEN, desk=manager.desk), app.worker_with(settings):
        await manager.manager.wait_known(app.actions, within_s=20)

        assert await memory_site.result(await memory_site.request("echo", data={"text": TEXT})) == TEXT

        sent_bytes, received_bytes = counted(manager, way="HTTP")
    assert 0 < sent_bytes < 1000
    assert 0 < received_bytes < 1000


async def test_over_mqtt_5_it_travels_compressed_both_ways(
    mosquitto: MosquittoNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_MQTT", mosquitto.url)
    async with Site("memory://", f"sqlite:///{tmp_path}/canoa.db") as site:
        manager = await site.start_manager()
        app = echoing(Canoa("plant", broker="memory://"))
        settings = WorkerSettings(node_id=NODE, layer=Layer.EDGE, mqtt=mosquitto.url, drain_s=1)
        async with app.worker_with(settings):
            await manager.manager.wait_known(app.actions, within_s=20)

            assert await site.result(await site.request("echo", data={"text": TEXT})) == TEXT

            sent_bytes, received_bytes = counted(manager, way="MQTT-LINK")
    assert 0 < sent_bytes < 1000
    assert 0 < received_bytes < 1000


async def test_by_a_link_of_mqtt_3_1_1_a_body_that_was_compressed_before_leaves_plain(mosquitto: MosquittoNode) -> None:
    heard: list[Message] = []

    def on_delivery(delivery: Delivery) -> None:
        heard.append(delivery.message)

    message = packed(Message(body=TEXT.encode()), CompressionRule(Compression.GZIP, 1))
    address = mqtt_address(mosquitto.url, Settings())
    client = MqttClient(address, client_id="old", topics={"canoa/test": on_delivery})
    client._is_old = True  # as after a broker that knows nothing newer

    running = asyncio.create_task(client.run())
    await eventually(lambda: client.is_up)
    client.post(["canoa/test"], message, lambda _: None)
    await eventually(lambda: bool(heard))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert (heard[0].body, heard[0].content_encoding) == (TEXT.encode(), None)
