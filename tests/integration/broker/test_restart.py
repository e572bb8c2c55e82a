"""A broker that dies under load, or is restarted: nothing confirmed is missing, and consuming goes on by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox
from tests.integration.broker.world import Traffic, has_all

from canoa.broker.port import Queue, Settlement
from canoa.testing import RabbitNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.broker.conftest import NewBroker

pytestmark = pytest.mark.rabbitmq

BACK_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def mortal_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A node of our own: this one dies."""
    with RabbitNode(tmp_path_factory.mktemp("mortal"), schedulers=1) as node:
        yield node


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_no_confirmed_message_is_missing_after_a_broker_was(
    how: str, mortal_node: RabbitNode, new_broker: NewBroker
) -> None:
    queue = Queue(name=f"q-{how}")
    broker = await new_broker(mortal_node.url())
    inbox = Inbox(Settlement.ACK)
    await broker.consume(queue.name, inbox, prefetch=20, topology=[queue])

    async with Traffic(broker, queue.name) as traffic:
        await traffic.flows()
        await asyncio.to_thread(mortal_node.kill if how == "killed" else mortal_node.stop)
        await asyncio.to_thread(mortal_node.start)
        await traffic.flows(within_s=BACK_WITHIN_S)

    await has_all(inbox, traffic)
    assert (await broker.depth(queue.name)).consumers == 1
