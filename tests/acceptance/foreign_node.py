"""A node that speaks the published wire and nothing else, inside the test: it takes messages, and may answer none."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from canoa.broker import topology
from canoa.broker.port import Delivery, Message, Publication

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from canoa import Canoa
    from canoa.broker.port import Broker


class ForeignNode:
    """`taken`: the messages it was sent. It answers each with `answer`, or what that makes of the data; None: it never
    does."""

    def __init__(self, name: str, broker: Broker, *, answer: str | Callable[[Any], str] | None = None) -> None:
        self.name = name
        self.answer = answer
        self.taken: list[Message] = []
        self._broker = broker

    def take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.message)
        delivery.settle()
        if self.answer is not None:
            asked = json.loads(delivery.message.body)
            answer = self.answer if isinstance(self.answer, str) else self.answer(json.loads(asked["messageData"]))
            said = {"actionTo": asked["actionTo"], "requestID": asked["requestID"], "messageData": answer}
            self._broker.post(step_result(json.dumps(said).encode()), lambda _: None)

    async def join(self, *actions: str) -> None:
        own = topology.node_queue(self.name)
        await self._broker.consume(topology.node_queue_name(self.name), self.take, prefetch=10, topology=own)
        await self._broker.publish(registration(self.name, *actions))


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


def step_result(body: bytes) -> Publication:
    message = Message(body=body)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS, mandatory=False)


@asynccontextmanager
async def linked(app: Canoa) -> AsyncIterator[Broker]:
    """A link of the test's own."""
    broker = app.new_broker("foreign")
    await broker.open()
    try:
        yield broker
    finally:
        await broker.aclose()
