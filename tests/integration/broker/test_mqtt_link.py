"""One MQTT link with a real Mosquitto behind it: what is said is confirmed or not, and told of once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import NoneType
from typing import TYPE_CHECKING

import pytest

from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable
from canoa.store.routed_port import NodeRow
from canoa.testing import MosquittoNode
from canoa.testing.ports import LOOPBACK
from canoa.transports.mqtt import MqttTransport
from canoa.vocabulary import Layer, NodeId
from canoa.wire import bundle
from canoa.wire.topics import bundle_topic, node_topics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path
    from typing import Any

    from canoa.broker.port import Delivery, PublishOutcome

WITHIN_S = 30.0
TOPIC = "town/news"
NODE = "gw-7"


class Heard:
    """What came, by topic, and how what was said went."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Message]] = []
        self.outcomes: list[PublishOutcome] = []
        self._changed = asyncio.Event()

    def on_delivery(self, delivery: Delivery) -> None:
        self.came.append((delivery.key, delivery.message))
        delivery.settle()
        self._changed.set()

    def on_outcome(self, outcome: PublishOutcome) -> None:
        self.outcomes.append(outcome)
        self._changed.set()

    def on_sent(self, places: range, outcome: PublishOutcome) -> None:
        for _ in places:
            self.on_outcome(outcome)

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not is_true():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture(params=[3, 20, 1000], ids=lambda at_once: f"{at_once}_at_once")
def mosquitto(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MosquittoNode]:
    """With few messages under way, as packaged, and with more than we would send."""
    with MosquittoNode(tmp_path, at_once=request.param, saves_changes=False) as node:
        yield node


def address(node: MosquittoNode) -> MqttAddress:
    return MqttAddress(LOOPBACK, node.port, None, None, None)


@asynccontextmanager
async def running(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def linked(node: MosquittoNode, heard: Heard, *topics: str, name: str = "hearing") -> AsyncIterator[MqttClient]:
    """A client that says, beside one that hears."""
    ready = [asyncio.Event(), asyncio.Event()]

    async def is_ready(number: int) -> None:
        ready[number].set()

    hearing = MqttClient(
        address(node),
        client_id=name,
        topics=dict.fromkeys(topics, heard.on_delivery),
        on_ready=lambda: is_ready(0),
    )
    saying = MqttClient(address(node), client_id=f"beside-{name}", on_ready=lambda: is_ready(1))
    async with running(hearing.run(), saying.run()):
        async with asyncio.timeout(WITHIN_S):
            for each in ready:
                await each.wait()
        yield saying


async def test_more_than_the_broker_takes_at_once_is_all_confirmed_and_comes_once_in_order(
    mosquitto: MosquittoNode,
) -> None:
    heard = Heard()
    async with linked(mosquitto, heard, TOPIC) as client:
        for number in range(1000):
            client.post([TOPIC], Message(body=b"%d" % number), heard.on_outcome)
        assert not heard.outcomes
        await heard.until(lambda: len(heard.came) >= 1000 and len(heard.outcomes) >= 1000)

    assert heard.outcomes == [None] * 1000
    assert [message.body for _, message in heard.came] == [b"%d" % number for number in range(1000)]


async def test_what_goes_to_several_topics_is_told_of_once(mosquitto: MosquittoNode) -> None:
    heard = Heard()
    async with linked(mosquitto, heard, "a", "b") as client:
        for _ in range(100):
            client.post(["a", "b"], Message(body=b"x"), heard.on_outcome)
        await heard.until(lambda: len(heard.came) >= 200 and len(heard.outcomes) >= 100)

    assert heard.outcomes == [None] * 100


async def test_whatever_was_said_when_the_broker_is_killed_is_told_of_as_unknown_or_unsent_and_later_words_arrive(
    mosquitto: MosquittoNode,
) -> None:
    heard = Heard()
    async with linked(mosquitto, heard, TOPIC) as client:
        for _ in range(500):
            client.post([TOPIC], Message(body=b"lost?"), heard.on_outcome)
        mosquitto.kill()
        await heard.until(lambda: len(heard.outcomes) == 500)
        client.post([TOPIC], Message(body=b"unsent"), heard.on_outcome)
        await heard.until(lambda: len(heard.outcomes) == 501)

        mosquitto.start()
        async with asyncio.timeout(WITHIN_S):
            while (TOPIC, b"again") not in [(topic, message.body) for topic, message in heard.came]:
                client.post([TOPIC], Message(body=b"again"), heard.on_outcome)
                await asyncio.sleep(0.1)

    told = heard.outcomes[:501]
    assert {type(each) for each in told} <= {type(None), DeliveryUnknown, BrokerUnreachable}
    assert isinstance(told[500], BrokerUnreachable)
    assert any(told)


# --- Messages to nodes --------------------------------------------------------------------------------------------


def node(*, takes_bundles: bool) -> NodeRow:
    return NodeRow(node_id=NodeId(NODE), layer=Layer.EDGE, takes_bundles=takes_bundles)


@asynccontextmanager
async def transport(mosquitto: MosquittoNode, heard: Heard) -> AsyncIterator[MqttTransport]:
    dotted, slashed = node_topics(NODE)
    made = MqttTransport(
        address(mosquitto),
        manager_id="m1",
        is_leading=lambda: True,
        on_registration=heard.on_delivery,
        on_result=heard.on_delivery,
        on_request=heard.on_delivery,
    )
    async with (
        linked(mosquitto, heard, dotted, slashed, bundle_topic(slashed)),
        running(*made.loops().values()),
        asyncio.timeout(WITHIN_S),
    ):
        while not made.is_up:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)
        yield made


async def test_messages_to_a_worker_that_reads_bundles_go_as_one_and_once(mosquitto: MosquittoNode) -> None:
    heard = Heard()
    messages = [Message(body=b"%d" % number, headers={"canoa-attempt": 1}) for number in range(100)]
    async with transport(mosquitto, heard) as way:
        way.post(node(takes_bundles=True), messages, heard.on_sent)
        way.post(node(takes_bundles=True), messages[:1], heard.on_sent)
        await heard.until(lambda: len(heard.came) >= 2 and len(heard.outcomes) >= 101)

    slashed = node_topics(NODE)[1]
    (first, whole), (second, alone) = heard.came
    assert (first, second) == (bundle_topic(slashed), slashed)
    assert [(part.body, part.headers) for part in bundle.parts(whole)] == [(m.body, m.headers) for m in messages]
    assert (alone.body, alone.headers) == (b"0", {"canoa-attempt": 1})
    assert heard.outcomes == [None] * 101


async def test_messages_to_any_other_device_go_one_by_one_in_both_spellings(mosquitto: MosquittoNode) -> None:
    heard = Heard()
    messages = [Message(body=b"%d" % number) for number in range(30)]
    async with transport(mosquitto, heard) as way:
        way.post(node(takes_bundles=False), messages, heard.on_sent)
        await heard.until(lambda: len(heard.came) >= 60 and len(heard.outcomes) >= 30)

    for topic in node_topics(NODE):
        assert [message.body for came, message in heard.came if came == topic] == [m.body for m in messages]
    assert heard.outcomes == [None] * 30


async def test_messages_to_a_node_that_has_subscribed_to_nothing_are_unroutable_and_one_spelling_is_enough(
    mosquitto: MosquittoNode,
) -> None:
    heard = Heard()
    dotted, slashed = node_topics("one-topic")
    stranger = NodeRow(node_id=NodeId("nobody"), layer=Layer.EDGE)
    device = NodeRow(node_id=NodeId("one-topic"), layer=Layer.EDGE)
    async with transport(mosquitto, heard) as way, linked(mosquitto, heard, slashed, name="device"):
        way.post(stranger, [Message(body=b"x")], heard.on_sent)
        await heard.until(lambda: len(heard.outcomes) == 1)
        way.post(device, [Message(body=b"x")], heard.on_sent)
        await heard.until(lambda: len(heard.outcomes) == 2)

    assert [type(each) for each in heard.outcomes] == [Unroutable, NoneType]
    assert dotted not in [topic for topic, _ in heard.came]
