"""A worker is a node by itself: it registers, hears managers, registers again when it should, and leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import letter, until_gone, until_holding
from tests.integration.pool.pool import Gate, sample, until
from tests.integration.routed.bare_manager import NODE, BareManager, managing

from canoa import Canoa
from canoa.broker import topology
from canoa.errors import QueueMissing, SettingError
from canoa.vocabulary import Layer
from canoa.wire import sapparchi
from canoa.wire.sapparchi import ActionLimits
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from canoa.testing.pytest_plugin import ProxyFactory
    from canoa.worker.worker import Worker

URN = "urn:sapparchi:Action:shop.one"
NAMED = WorkerSettings(node_id=NODE)


def offering_one(app: Canoa) -> None:
    app.action(name="one", timeout=5, retry=2)(lambda: 1)


def is_registered(worker: Worker) -> bool:
    return sample(worker, "canoa_node_registered") == 1


async def test_a_worker_says_what_it_is_and_is_registered_once_acknowledged(app: Canoa, manager: BareManager) -> None:
    offering_one(app)

    async with app.worker_with(WorkerSettings(node_id=NODE, layer=Layer.FOG, site="natal")) as worker:
        said = await manager.registration()

        assert (said.body.node_id, said.body.layer, said.body.actions) == (NODE, Layer.FOG, [URN])
        assert said.body.force_register
        assert said.headers[sapparchi.SITE] == "natal"
        assert said.headers[sapparchi.LOAD] == 0.0
        limits = msgspec.json.decode(str(said.headers[sapparchi.LIMITS]), type=dict[str, ActionLimits])
        assert limits == {URN: ActionLimits(timeout=5000, retry=2)}
        assert not is_registered(worker)

        await manager.acknowledge("another", [URN])
        await manager.acknowledge(NODE, [URN])
        await until(lambda: is_registered(worker))


async def test_an_acknowledgement_may_come_to_the_node_alone(memory_app: Canoa, memory_manager: BareManager) -> None:
    offering_one(memory_app)

    async with memory_app.worker_with(NAMED) as worker:
        said = await memory_manager.registration()
        await memory_manager.acknowledge(NODE, [URN], reply_to=said.reply_to)

        await until(lambda: is_registered(worker))


async def test_a_forced_heartbeat_registers_again_and_only_once(app: Canoa, manager: BareManager) -> None:
    offering_one(app)

    async with app.worker_with(NAMED):
        first = await manager.registration()
        await manager.acknowledge(NODE, [URN])
        for _ in range(3):
            await manager.heartbeat(1, is_forced=True)
        second = await manager.registration()
        await manager.heartbeat(2)
        await asyncio.sleep(1.2)  # longer than forced ones are put together

        assert second.headers[sapparchi.INSTANCE] == first.headers[sapparchi.INSTANCE]
        assert manager.registration_count == 2


async def test_a_flood_of_forced_heartbeats_is_one_registration_per_second(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    offering_one(memory_app)

    async with memory_app.worker_with(NAMED):
        await memory_manager.registration()
        began_s = asyncio.get_running_loop().time()
        for ts in range(5000):
            await memory_manager.heartbeat(ts, is_forced=True)
        await memory_manager.registration()
        seconds = asyncio.get_running_loop().time() - began_s

        assert memory_manager.registration_count <= 2 + seconds


async def test_what_is_no_heartbeat_and_no_acknowledgement_is_not_heard(
    memory_app: Canoa, memory_manager: BareManager
) -> None:
    offering_one(memory_app)

    async with memory_app.worker_with(NAMED) as worker:
        for exchange, key in ((topology.MANAGER_AVAILABLE, ""), (topology.AMQ_TOPIC, topology.NODES_ACK)):
            for body in (b"", b"\xff", b"[]", b"[" * 50_000, b'{"ts":"now"}'):
                await memory_manager.broker.publish(letter(key, body, exchange=exchange))
        await memory_manager.acknowledge(NODE, [URN])

        await until(lambda: is_registered(worker))


async def test_leaving_is_said_and_a_made_up_name_leaves_no_queue(app: Canoa, manager: BareManager) -> None:
    offering_one(app)

    async with app.worker() as worker:
        said = await manager.registration()
        node_id = worker.node_id
        instance = str(said.headers[sapparchi.INSTANCE])

    left = await manager.registration()
    assert (left.body.node_id, left.body.actions, left.body.force_register) == (node_id, [], True)
    await until_gone(manager.broker, topology.node_queue_name(node_id))
    await until_gone(manager.broker, topology.heartbeat_queue_name(node_id, instance))


async def test_a_node_with_a_name_keeps_its_queue(app: Canoa, manager: BareManager) -> None:
    offering_one(app)

    async with app.worker_with(NAMED):
        pass
    await manager.send("shop.one")
    await until_holding(manager.broker, topology.node_queue_name(NODE), 1)

    async with app.worker_with(NAMED):
        assert (await manager.answer()).value == 1


async def test_all_that_waits_for_a_leaving_node_is_returned(memory_app: Canoa, memory_manager: BareManager) -> None:
    gate = Gate()
    memory_app.action(name="held")(gate.hold)

    async with memory_app.worker_with(WorkerSettings(node_id=NODE, concurrency=1, drain_s=0.05)):
        for _ in range(500):
            await memory_manager.send("shop.held")
        await gate.has(1)

    statuses = [each.status for each in await memory_manager.answers(500)]
    assert statuses == ["returned"] * 500


async def test_a_worker_of_the_pool_alone_is_no_node(app: Canoa, manager: BareManager) -> None:
    offering_one(app)

    async with app.worker_with(WorkerSettings(node_id=NODE, join=False)):
        with pytest.raises(QueueMissing):
            await manager.broker.depth(topology.node_queue_name(NODE))
    assert manager.registration_count == 0


async def test_without_a_manager_the_pool_works_and_a_later_one_finds_the_node(app: Canoa) -> None:
    @app.action
    async def one() -> int:
        return 1

    async with app.worker_with(NAMED):
        assert await one.call() == 1
        async with managing(app) as manager:
            await manager.heartbeat(1)

            assert (await manager.registration()).body.node_id == NODE


@pytest.mark.rabbitmq
async def test_a_node_registers_again_after_its_link_was_cut(rabbit_url: str, tcp_proxy: ProxyFactory) -> None:
    proxy = await tcp_proxy(rabbit_url)
    beside, app = Canoa("shop", broker=rabbit_url), Canoa("shop", broker=proxy.via(rabbit_url))
    offering_one(app)

    async with managing(beside) as manager, app.worker_with(NAMED) as worker:
        await manager.registration()
        await manager.acknowledge(NODE, [URN])
        await until(lambda: is_registered(worker))
        proxy.cut()
        proxy.restore()
        again = await manager.registration()
        await manager.send("shop.one")

        assert again.body.force_register
        assert (await manager.answer()).value == 1


@pytest.mark.parametrize("node_id", ["with space", "x" * 129, "gw/7", "gw#", "é"])
def test_a_node_id_that_is_unsafe_in_names_is_refused(node_id: str) -> None:
    with pytest.raises(SettingError, match="use 1 to 128 letters, digits"):
        WorkerSettings(node_id=node_id)


@pytest.mark.parametrize("site", ["x" * 129, "a\nb"])
def test_a_site_that_cannot_be_shown_is_refused(site: str) -> None:
    with pytest.raises(SettingError, match="characters that can be printed"):
        WorkerSettings(site=site)
