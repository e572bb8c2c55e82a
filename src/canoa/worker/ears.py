"""By what a node hears, so that it can try whether it does: the queue on its broker, or its topic on an MQTT broker.

What comes of a trial, and what follows from it, is judged in `proving.py`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from canoa.broker import topology
from canoa.broker.listeners import looked_at
from canoa.broker.port import Publication
from canoa.errors import BrokerRefusedMessage, CanoaError, DeliveryUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.mqtt_client import MqttClient
    from canoa.broker.port import Broker, Message, PublishOutcome
    from canoa.worker.node import Node

LINK_POLL_S: Final = 0.05


class NotAllowed(CanoaError):
    """The node may not send to itself, or seems not to: it cannot be tried by this ear. Nothing is wrong with it."""


class Ear(Protocol):
    """Belongs to the event loop."""

    is_certain: bool
    """Whoever is not let in, or not let through, hears so. Where a broker may drop messages without a word, only a node
    that heard itself once can tell that it no longer does."""

    remedy: str
    """Where to look if it is deaf."""

    async def ask(self, canary: Message) -> None:
        """Send it to the node itself, and return once the broker has it. Raises `Unroutable` where nothing leads to the
        node, `NotAllowed`, or another `CanoaError` where it is cut off."""

    async def is_waiting(self) -> bool:
        """It may stand behind what fills our hands. Raises `CanoaError` where the node is cut off."""

    async def listen_anew(self) -> None: ...


class QueueEar:
    """`in_hand`: deliveries that are not settled."""

    is_certain = True
    remedy = "another program may take from its queue: look with `rabbitmqctl list_consumers`"

    def __init__(self, broker: Broker, node: Node, in_hand: Callable[[], int]) -> None:
        self._broker = broker
        self._node = node
        self._in_hand = in_hand

    async def ask(self, canary: Message) -> None:
        await self._broker.publish(Publication(message=canary, exchange=topology.NODE_UNICAST, key=""))

    async def is_waiting(self) -> bool:
        """Whoever can look at the queue has a link."""
        depth = await looked_at(self._broker, self._node.id)
        return depth is not None and bool(depth.messages and depth.consumers and self._in_hand())

    async def listen_anew(self) -> None:
        await self._node.listen_anew()


class TopicEar:
    """`in_hand`: what came by topic and is not acknowledged; brokers send a client only so many at once, and do not say
    how many."""

    is_certain = False

    def __init__(self, client: MqttClient, topic: str, in_hand: Callable[[], int]) -> None:
        self._client = client
        self._topic = topic
        self._in_hand = in_hand
        self._loop = asyncio.get_running_loop()
        self.remedy = f"look at what its MQTT broker lets it hear, and say, at {topic}"

    async def ask(self, canary: Message) -> None:
        told: asyncio.Future[PublishOutcome] = self._loop.create_future()
        self._client.post([self._topic], canary, partial(_resolve, told))
        outcome = await told
        if isinstance(outcome, BrokerRefusedMessage | DeliveryUnknown):  # some brokers hang up instead
            raise NotAllowed(str(outcome)) from outcome
        if outcome is not None:
            raise outcome

    async def is_waiting(self) -> bool:
        return self._in_hand() > 0

    async def listen_anew(self) -> None:
        """Return once there is another link: what was subscribed to is subscribed to again."""
        before = self._client.links
        self._client.link_anew()
        while self._client.links == before:  # noqa: ASYNC110  # its own loop makes it, and has nobody to tell
            await asyncio.sleep(LINK_POLL_S)


def _resolve(told: asyncio.Future[PublishOutcome], outcome: PublishOutcome) -> None:
    if not told.done():  # or else nobody waits for it any more
        told.set_result(outcome)


_queue: type[Ear] = QueueEar
_topic: type[Ear] = TopicEar
