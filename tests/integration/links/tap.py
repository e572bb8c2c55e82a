"""Listens in on what travels between managers and one node, and has an action that travels well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.broker.inbox import Inbox

from canoa.broker import topology
from canoa.broker.port import Binding, Queue, Settlement

if TYPE_CHECKING:
    from canoa import Canoa
    from canoa.broker.port import Broker, Message
    from canoa.manager.hosting import Hosted

NODE = "gw-7"
TEXT = "the same again and again. " * 1000


class Tap:
    """A copy of every message to the node, and of every answer: of what goes alone, as published."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._out = Inbox(Settlement.ACK)
        self._in = Inbox(Settlement.ACK)

    async def start(self) -> None:
        to_node = Binding(exchange=topology.NODE_UNICAST, queue="tap.out", headers={"nodeId": NODE})
        await self._broker.consume(
            "tap.out", self._out, prefetch=100, topology=[Queue(name="tap.out", expires_s=60), to_node]
        )
        answers = Binding(exchange=topology.AMQ_TOPIC, queue="tap.in", key=topology.STEP_RESULTS)
        await self._broker.consume(
            "tap.in", self._in, prefetch=100, topology=[Queue(name="tap.in", expires_s=60), answers]
        )

    async def message(self) -> Message:
        return (await self._out.take_one()).message

    async def answer(self) -> Message:
        return (await self._in.take_one()).message


def echoing(app: Canoa) -> Canoa:
    @app.action(retry=0)
    async def echo(text: str) -> str:
        return text

    return app


def counted(manager: Hosted, *, way: str, layer: str = "EDGE") -> tuple[int, int]:
    """Out and in, as Prometheus reads it."""
    found = [
        manager.manager.registry.get_sample_value(
            "canoa_link_bytes_total", {"layer": layer, "way": way, "direction": direction}
        )
        for direction in ("out", "in")
    ]
    return int(found[0] or 0), int(found[1] or 0)
