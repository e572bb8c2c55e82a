"""A node hears managers before it listens on its own queue, and says then what is so: that this way is still closed."""

from __future__ import annotations

from tests.contract.broker.inbox import Inbox

from canoa.broker import topology
from canoa.broker.memory import MemoryBroker
from canoa.broker.port import Settlement
from canoa.vocabulary import AMQP, Layer
from canoa.wire import sapparchi
from canoa.worker.identity import Identity
from canoa.worker.node import Node


async def test_a_node_that_must_register_before_it_listens_says_that_its_queue_is_closed() -> None:
    broker, heard = MemoryBroker(), Inbox(Settlement.ACK)
    await broker.open()
    await broker.declare(*topology.shared(), *topology.manager())
    await broker.consume(topology.NODES_REGISTER, heard, prefetch=10)
    identity = Identity(node_id="gw-7", is_made_up=False, layer=Layer.FOG, site="", labels={}, policies={})
    node = Node(broker, identity, load=lambda: 0.0, closed=lambda: () if node.is_listening else (AMQP,), page=None)

    node.renew()  # as when its link is made anew while it joins
    said = await heard.take_one()
    await node.join(lambda _: None, prefetch=1)

    assert said.message.headers[sapparchi.CLOSED] == AMQP
    assert node.is_listening
    await node.leave()
    await broker.aclose()
