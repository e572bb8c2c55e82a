"""A node that speaks the published wire and nothing else, inside the test: it takes messages, and answers none."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Delivery, Message, Publication

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa import Canoa
    from canoa.broker.port import Broker


class DeafNode:
    """`taken`: the messages it was sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.taken: list[Message] = []

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.message)
        delivery.settle()

    async def join(self, broker: Broker, *actions: str) -> None:
        await broker.consume(
            topology.node_queue_name(self.name), self.take, prefetch=10, topology=topology.node_queue(self.name)
        )
        await broker.publish(registration(self.name, *actions))


def registration(node_id: str, *actions: str, is_forced: bool = False) -> Publication:
    body = {
        "nodeId": node_id,
        "endpoint": node_id,
        "layer": "FOG",
        "type": "foreign",
        "actions": [f"urn:sapparchi:Action:{action}" for action in actions],
        "forceRegister": is_forced,
    }
    message = Message(body=json.dumps(body).encode())
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.NODES_REGISTER, mandatory=False)


@asynccontextmanager
async def linked(app: Canoa) -> AsyncIterator[Broker]:
    """A link of the test's own."""
    broker = app.new_broker("foreign")
    await broker.open()
    try:
        yield broker
    finally:
        await broker.aclose()
