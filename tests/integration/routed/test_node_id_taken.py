"""A node's id belongs to one live worker: a second one does not begin, or ends once a manager says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import opened, sample, until
from tests.integration.routed.bare_manager import NODE, BareManager, Registered

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.errors import NodeIdTaken
from canoa.wire import sapparchi
from canoa.wire.sapparchi import RegistrationAck
from canoa.worker import node
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa
    from canoa.broker.port import Broker

NAMED = WorkerSettings(node_id=NODE, drain_s=1)
QUEUE = topology.node_queue_name(NODE)
REMEDY = "another live worker has the node id 'gw-7'; give this one an id of its own"


@pytest.fixture
async def listening(app: Canoa) -> AsyncIterator[Broker]:
    """Somebody who has the id, on a link of his own."""
    async with opened(app) as broker:
        declared = topology.node_queue(NODE)
        await broker.consume(QUEUE, lambda delivery: None, prefetch=1, topology=declared)
        yield broker


async def test_a_worker_whose_id_somebody_has_does_not_begin(
    app: Canoa, manager: BareManager, listening: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.action(name="one")(lambda: 1)
    monkeypatch.setattr(node, "PREDECESSOR_WITHIN_S", 0.3)

    with pytest.raises(NodeIdTaken, match=REMEDY):
        async with app.worker_with(NAMED):
            pass

    assert (await listening.depth(QUEUE)).consumers == 1
    assert manager.registration_count == 0


async def test_a_worker_waits_for_the_link_of_one_that_is_gone(
    app: Canoa, manager: BareManager, listening: Broker
) -> None:
    app.action(name="one")(lambda: 1)
    looking = app.worker_with(NAMED)
    entering = asyncio.ensure_future(looking.__aenter__())
    done, _ = await asyncio.wait([entering], timeout=0.5)
    assert not done

    await listening.aclose()
    await entering

    await manager.send("shop.one")
    assert (await manager.answer()).value == 1
    await looking.__aexit__(None, None, None)


async def test_a_worker_that_is_told_that_its_id_is_taken_leaves_the_queue_alone_and_says_why(
    app: Canoa, manager: BareManager
) -> None:
    app.action(name="one")(lambda: 1)

    async with app.worker_with(NAMED) as worker:
        await _tell_taken(manager, await manager.registration())
        with pytest.raises(NodeIdTaken, match=REMEDY):
            await asyncio.wait_for(worker.wait_failed(), 10)

        await manager.send("shop.one")
        await until_holding(manager.broker, QUEUE, 1)
    await until_holding(manager.broker, QUEUE, 1)
    assert manager.answer_count == 0


async def test_what_is_told_to_another_instance_is_not_heard(memory_app: Canoa, memory_manager: BareManager) -> None:
    memory_app.action(name="one")(lambda: 1)

    async with memory_app.worker_with(NAMED) as worker:
        said = await memory_manager.registration()
        await _tell_taken(memory_manager, said, instance="another")
        await memory_manager.acknowledge(NODE, said.body.actions, reply_to=said.reply_to)

        await until(lambda: sample(worker, "canoa_node_registered") == 1)
        await memory_manager.send("shop.one")
        assert (await memory_manager.answer()).value == 1


async def _tell_taken(manager: BareManager, said: Registered, *, instance: str | None = None) -> None:
    """As managers do."""
    assert said.reply_to is not None
    whose = said.headers[sapparchi.INSTANCE] if instance is None else instance
    headers: dict[str, HeaderValue] = {sapparchi.INSTANCE: whose, sapparchi.TAKEN: True}
    body = sapparchi.encode(RegistrationAck(token="", node_id=NODE, actions=[]))
    message = Message(body=body, headers=headers)
    await manager.broker.publish(Publication(message=message, key=said.reply_to, mandatory=False))
