"""A node on its broker and on MQTT: what comes by both runs once, and whoever asks again is told again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from msgspec.structs import replace
from tests.contract.broker.inbox import Inbox
from tests.integration.pool.pool import until
from tests.integration.routed.bare_manager import NODE, TASK_ID, asking
from tests.integration.routed.test_node_outbox import Counter

from canoa import Canoa
from canoa.broker import topology
from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message, Settlement
from canoa.testing.ports import LOOPBACK
from canoa.wire import sapparchi
from canoa.wire.sapparchi import NodeMessage
from canoa.wire.topics import node_topics, spellings
from canoa.worker.settings import WorkerSettings
from canoa.worker.uplinks.posting import HEALTH, REGISTER, RESULTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.routed.bare_manager import BareManager

    from canoa.testing import MosquittoNode, RabbitNode
    from canoa.testing.proxy import TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory

OURS = {sapparchi.OWNER: sapparchi.MANAGER}
WITHIN_S = 30.0
FIRST, AGAIN = (sapparchi.request_id(TASK_ID, 0, 1, send) for send in (1, 2))


@pytest.fixture(params=[pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def app_broker(request: pytest.FixtureRequest) -> str:
    """Two links are what these are about."""
    url: str = request.getfixturevalue("rabbit_url")
    return url


class Topics:
    """A manager's hand at the MQTT broker."""

    def __init__(self, node: MosquittoNode) -> None:
        self.registrations, self.answers = Inbox(Settlement.ACK), Inbox(Settlement.ACK)
        heard = {topology.NODES_REGISTER: self.registrations, topology.STEP_RESULTS: self.answers}
        topics = {topic: inbox for name, inbox in heard.items() for topic in spellings(name)}
        address = MqttAddress(LOOPBACK, node.port, None, None, None)
        self._client = MqttClient(address, client_id="manager", topics=topics)

    @asynccontextmanager
    async def linked(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self._client.run())
        await until(lambda: self._client.is_up, within_s=WITHIN_S)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def send(self, message: Message) -> None:
        taken: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._client.post([node_topics(NODE)[1]], message, taken.set_result)
        assert await asyncio.wait_for(taken, WITHIN_S) is None

    async def answer(self) -> NodeMessage:
        return sapparchi.decode((await self.answers.take_one()).message.body, NodeMessage)

    async def beat(self) -> None:
        """As a manager does; return once the node has heard it, and registers again."""
        beat = sapparchi.encode(sapparchi.Heartbeat(ts=1, force_register=True))
        before = len(self.registrations.deliveries)
        self._client.post(spellings(topology.MANAGER_AVAILABLE), Message(body=beat), lambda _: None)
        await until(lambda: len(self.registrations.deliveries) > before, within_s=WITHIN_S)


class Door:
    """A manager's, over HTTP."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.url = ""

    async def _on_health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "UP"})

    async def _on_registration(self, request: web.Request) -> web.Response:
        said = sapparchi.decode(await request.read(), sapparchi.Registration)
        return web.json_response({"token": "t", "nodeId": said.node_id, "actions": said.actions})

    async def _on_result(self, request: web.Request) -> web.Response:
        self.answers.put_nowait(await request.read())
        return web.json_response({"taken": True})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get(HEALTH, self._on_health)
        app.router.add_post(REGISTER, self._on_registration)
        app.router.add_post(RESULTS, self._on_result)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    async with door.open():
        yield door


@pytest.fixture
async def topics(mosquitto: MosquittoNode) -> AsyncIterator[Topics]:
    topics = Topics(mosquitto)
    async with topics.linked():
        yield topics


@pytest.fixture
async def proxy(tcp_proxy: ProxyFactory, rabbit_url: str) -> TcpProxy:
    """The node's way to the broker; the manager has its own."""
    return await tcp_proxy(rabbit_url)


@pytest.fixture
async def node(proxy: TcpProxy, rabbit_url: str) -> AsyncIterator[Canoa]:
    app = Canoa("shop", broker=proxy.via(rabbit_url))
    yield app
    await app.aclose()


def settings(mosquitto: MosquittoNode) -> WorkerSettings:
    return WorkerSettings(node_id=NODE, mqtt=mosquitto.url, drain_s=1.0)


async def until_acknowledged(rabbit: RabbitNode, url: str) -> None:
    """Nothing is in the node's hands."""
    listed = ["list_queues", "--no-table-headers", "-p", url.rpartition("/")[2], "name", "messages_unacknowledged"]
    async with asyncio.timeout(WITHIN_S):
        while f"{topology.node_queue_name(NODE)}\t0" not in await asyncio.to_thread(rabbit.ctl, *listed):
            pass


async def test_a_request_that_comes_by_both_ways_runs_once(
    node: Canoa, manager: BareManager, topics: Topics, mosquitto: MosquittoNode
) -> None:
    counter = Counter(node)
    async with node.worker_with(settings(mosquitto)):
        await topics.registrations.take_one()
        await manager.send("shop.count", headers=OURS, request_id=FIRST)
        await counter.gate.has(1)
        await topics.send(asking("shop.count", headers=OURS, request_id=FIRST))
        await topics.send(asking("shop.count", headers=OURS, request_id=AGAIN))  # the same attempt, sent once more
        counter.gate.open()

        answers = await manager.answers(2)

    assert {(each.request_id, each.value) for each in answers} == {(FIRST, 1), (AGAIN, 1)}
    assert counter.runs == 1


@pytest.mark.parametrize("request_id", [FIRST, AGAIN])
async def test_who_asks_by_the_other_way_for_what_was_answered_is_told_again_and_nothing_runs(
    node: Canoa,
    manager: BareManager,
    topics: Topics,
    mosquitto: MosquittoNode,
    rabbit_node: RabbitNode,
    rabbit_url: str,
    request_id: str,
) -> None:
    counter = Counter(node)
    counter.gate.open()
    async with node.worker_with(settings(mosquitto)):
        await topics.registrations.take_one()
        await manager.send("shop.count", headers=OURS, request_id=FIRST)
        first = await manager.answer()

        await until_acknowledged(rabbit_node, rabbit_url)  # before that, the answer on its way would serve both

        await topics.send(asking("shop.count", headers=OURS, request_id=request_id))
        again = await manager.answer()

    assert (first.request_id, again.request_id) == (FIRST, request_id)
    assert (first.value, again.value, counter.runs) == (1, 1, 1)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_answers_go_over_mqtt_where_a_manager_is_heard_there_and_over_http_where_none_is(
    node: Canoa,
    manager: BareManager,
    topics: Topics,
    door: Door,
    proxy: TcpProxy,
    mosquitto: MosquittoNode,
    is_heard: bool,
) -> None:
    counter = Counter(node)
    by_all = replace(settings(mosquitto), http=f"{LOOPBACK}:0", manager_url=door.url)
    async with node.worker_with(by_all):
        await topics.registrations.take_one()
        if is_heard:
            await topics.beat()
        await manager.send("shop.count", headers=OURS, request_id=FIRST)
        await counter.gate.has(1)

        proxy.cut()
        counter.gate.open()
        if is_heard:
            assert (await topics.answer()).request_id == FIRST
            assert door.answers.empty()
        else:
            body = await asyncio.wait_for(door.answers.get(), WITHIN_S)
            assert sapparchi.decode(body, NodeMessage).request_id == FIRST
            assert not topics.answers.deliveries

    assert counter.runs == 1


@pytest.mark.parametrize("is_heard", [True, False])
async def test_answers_go_over_the_broker_where_a_manager_is_heard_there_and_over_http_where_none_is(
    node: Canoa, manager: BareManager, door: Door, is_heard: bool
) -> None:
    counter = Counter(node)
    counter.gate.open()
    async with node.worker_with(WorkerSettings(node_id=NODE, http=f"{LOOPBACK}:0", manager_url=door.url)):
        await manager.registration()
        if is_heard:
            await manager.heartbeat(1, is_forced=True)
            await manager.registration()
        await manager.send("shop.count", headers=OURS, request_id=FIRST)

        if is_heard:
            assert (await manager.answer()).request_id == FIRST
            assert door.answers.empty()
        else:
            body = await asyncio.wait_for(door.answers.get(), WITHIN_S)
            assert sapparchi.decode(body, NodeMessage).request_id == FIRST
            assert not manager.answer_count


async def test_a_cut_from_the_broker_is_told_over_mqtt_and_leaving_is_told_by_both(
    node: Canoa, manager: BareManager, topics: Topics, proxy: TcpProxy, mosquitto: MosquittoNode
) -> None:
    Counter(node)

    async def closed() -> object:
        return (await topics.registrations.take_one()).message.headers.get(sapparchi.CLOSED)

    async with node.worker_with(settings(mosquitto)):
        by_broker = await manager.registration()
        proxy.cut()
        async with asyncio.timeout(WITHIN_S):
            while await closed() != "AMQP":
                pass
        proxy.restore()
        async with asyncio.timeout(WITHIN_S):
            while await closed() is not None:
                pass
    async with asyncio.timeout(WITHIN_S):
        while (left := await manager.registration()).body.actions:
            pass
        while sapparchi.decode(
            (by_topic := await topics.registrations.take_one()).message.body, sapparchi.Registration
        ).actions:
            pass

    assert by_broker.headers[sapparchi.WAYS] == "AMQP,MQTT"
    assert sapparchi.CLOSED not in left.headers
    assert sapparchi.CLOSED not in by_topic.message.headers


async def test_every_link_to_its_mqtt_broker_has_a_number_which_all_ways_say(
    node: Canoa, manager: BareManager, topics: Topics, mosquitto: MosquittoNode, tcp_proxy: ProxyFactory
) -> None:
    Counter(node)
    to_mosquitto = await tcp_proxy(mosquitto.url)

    async def until_said(link: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while (await topics.registrations.take_one()).message.headers.get(sapparchi.LINK) != link:
                pass
            while (await manager.registration()).headers.get(sapparchi.LINK) != link:
                pass

    async with node.worker_with(replace(settings(mosquitto), mqtt=to_mosquitto.via(mosquitto.url))):
        await topics.registrations.take_one()
        to_mosquitto.cut()
        to_mosquitto.restore()

        await until_said(2)
