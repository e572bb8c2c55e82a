"""A worker on MQTT that leaves says so, and does not wait for ever for a broker that says nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.contract.broker.inbox import Inbox
from tests.integration.routed.test_node_ways import Topics

from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message, Settlement
from canoa.errors import DeliveryUnknown
from canoa.testing.ports import LOOPBACK
from canoa.worker.uplinks import mqtt
from canoa.worker.uplinks.mqtt import MqttUplink

if TYPE_CHECKING:
    import pytest

    from canoa.broker.port import Delivery, PublishOutcome
    from canoa.testing import MosquittoNode
    from canoa.testing.pytest_plugin import ProxyFactory

WITHIN_S = 20.0
HERE, FAREWELL = b"here", b"farewell"


def said(*, is_leaving: bool = False, **_: Any) -> Message:
    return Message(body=FAREWELL if is_leaving else HERE)


def uplink_at(port: int) -> MqttUplink:
    address = MqttAddress(LOOPBACK, port, None, None, None)
    return MqttUplink(address, node_id="gw-7", said=said, is_lasting=False, is_alone=True)


def ignored(_: object) -> None: ...


async def test_a_worker_that_leaves_says_so(mosquitto: MosquittoNode) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    ready = asyncio.Event()

    def on_delivery(delivery: Delivery) -> None:
        delivery.settle()
        heard.put_nowait(delivery.message.body)

    async def on_ready() -> None:
        ready.set()

    address = MqttAddress(LOOPBACK, mosquitto.port, None, None, None)
    topics = {"sapparchi/nodes/register": on_delivery}
    listening = asyncio.create_task(MqttClient(address, client_id="m", topics=topics, on_ready=on_ready).run())
    uplink = uplink_at(mosquitto.port)
    async with asyncio.timeout(WITHIN_S):
        await ready.wait()
        await uplink.start(ignored)
        assert await heard.get() == HERE

        await uplink.leave()

        assert await heard.get() == FAREWELL  # from itself: its link is up, so nobody says it for it
    await uplink.aclose()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_what_comes_to_one_that_leaves_is_given_to_it_where_no_session_keeps_it(mosquitto: MosquittoNode) -> None:
    topics, came = Topics(mosquitto), Inbox(Settlement.ACK)
    uplink = uplink_at(mosquitto.port)
    async with topics.linked(), asyncio.timeout(WITHIN_S):
        await uplink.start(came)
        await uplink.leave()

        await topics.send(Message(body=b"late"))

        assert (await came.take_one()).message.body == b"late"
    await uplink.aclose()


async def test_a_farewell_that_nobody_confirms_keeps_nothing_else_from_being_told_of(
    mosquitto: MosquittoNode, tcp_proxy: ProxyFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "LEAVE_WITHIN_S", 0.1)
    outcomes: list[PublishOutcome] = []
    proxy = await tcp_proxy(mosquitto.url)
    uplink = uplink_at(proxy.port)
    async with asyncio.timeout(WITHIN_S):
        await uplink.start(ignored)
        proxy.stall()

        await uplink.leave()
        uplink.send(Message(body=b"an answer"), outcomes.append)  # of what was in hand
        proxy.cut()
        await uplink.aclose()

    assert [type(each) for each in outcomes] == [DeliveryUnknown]
