"""A crowd of nodes that answer canaries, on one connection. `python -m benchmarks.manager.choir <count>` goes on until
it is killed.

They share one queue, bound for each of them: what a manager sends and hears is the same as with a queue each.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from benchmarks import environment
from benchmarks.manager.swarm import node_id, registration
from canoa.broker import topology
from canoa.broker.port import Binding, Exchange, ExchangeKind, Message, Publication, Queue
from canoa.broker.rabbitmq import RabbitBroker
from canoa.wire import canary, sapparchi
from canoa.wire.sapparchi import Heartbeat, NodeMessage

if TYPE_CHECKING:
    from canoa.broker.port import Delivery, PublishOutcome

SUNG: Final = Queue(name="bench.choir")
HEARD: Final = Queue(name="bench.choir.heartbeats")


class Choir:
    def __init__(self, broker: RabbitBroker, count: int) -> None:
        self._broker = broker
        self._count = count

    async def sing(self) -> None:
        unicast = Exchange(name=topology.NODE_UNICAST, kind=ExchangeKind.HEADERS)
        bindings = [
            Binding(exchange=unicast.name, queue=SUNG.name, headers={sapparchi.NODE_ID: node_id(number)})
            for number in range(self._count)
        ]
        await self._broker.declare(unicast, SUNG, *bindings)
        await self._broker.consume(SUNG.name, self._answer, prefetch=1000)
        heartbeats = [
            Exchange(name=topology.MANAGER_AVAILABLE, kind=ExchangeKind.FANOUT),
            HEARD,
            Binding(exchange=topology.MANAGER_AVAILABLE, queue=HEARD.name),
        ]
        await self._broker.consume(HEARD.name, self._heard, prefetch=10, topology=heartbeats)
        self._register(is_forced=False)

    def _answer(self, delivery: Delivery) -> None:
        request = sapparchi.decode(delivery.message.body, NodeMessage)
        delivery.settle()
        of = sapparchi.canary_node(request.request_id) or ""
        self._broker.post(canary.answer(request, of, reply_to=delivery.message.reply_to), _ignored)

    def _heard(self, delivery: Delivery) -> None:
        delivery.settle()
        if sapparchi.decode(delivery.message.body, Heartbeat).force_register:
            self._register(is_forced=True)

    def _register(self, *, is_forced: bool) -> None:
        for number in range(self._count):
            message = Message(body=registration(number, is_forced=is_forced), headers={sapparchi.CANARIES: True})
            way = (topology.AMQ_TOPIC, topology.NODES_REGISTER)
            self._broker.post(Publication(message=message, exchange=way[0], key=way[1], mandatory=False), _ignored)


def _ignored(_: PublishOutcome) -> None:
    """The next one comes soon."""


async def main(count: int) -> None:
    broker = RabbitBroker(environment.broker_url(), name="choir")
    await broker.open()
    await Choir(broker, count).sing()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
