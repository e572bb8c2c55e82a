"""To nodes through the manager's own broker: to their queues, or to the topics that MQTT devices subscribed to there.

A broker that translates topics into keys (RabbitMQ's MQTT plugin) makes a subscription a queue: so both are published
by the same link, mandatory and confirmed, and it is known at once whether anybody is there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import topology
from canoa.broker.listeners import listeners
from canoa.broker.port import Publication
from canoa.broker.posting import post
from canoa.errors import BrokerUnreachable
from canoa.wire.bundle import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Broker, Message
    from canoa.store.routed_port import NodeRow
    from canoa.transports.port import NodeTransport, OnSent, SeenTransport


class AmqpTransport:
    """To a node's own queue, behind the published headers exchange. Bundles pass by it: others may listen there who
    know nothing of them. `answers`: the queue where their answers are wanted; empty: where all are."""

    def __init__(self, broker: Broker, *, answers: str = "") -> None:
        self._broker = broker
        self._answers = answers or None

    @property
    def is_up(self) -> bool:
        return self._broker.is_linked

    def may_reach(self, node: NodeRow) -> bool:
        return True

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        if not node.takes_bundles or len(messages) == 1:
            for place, message in enumerate(messages):
                self._post_alone(message, range(place, place + 1), on_sent)
            return
        place = 0
        for message, count in packed(messages, are_within_bounds=True):  # `routed.to_node` made them
            places, place = range(place, place + count), place + count
            if count == 1:
                self._post_alone(message, places, on_sent)
            else:
                bundle = msgspec.structs.replace(message, reply_to=self._answers)
                publication = Publication(message=bundle, key=topology.node_queue_name(node.node_id))
                post(self._broker, publication, partial(on_sent, places), later=True)

    def _post_alone(self, message: Message, places: range, on_sent: OnSent) -> None:
        publication = Publication(message=message, key="", exchange=topology.NODE_UNICAST)
        post(self._broker, publication, partial(on_sent, places), later=True)

    async def listeners(self, node: NodeRow) -> int | None:
        """Raises `BrokerUnreachable`, at once while there is no link: many are asked about together."""
        if not self._broker.is_linked:
            raise BrokerUnreachable("the broker cannot be asked who listens there: it is away")
        return await listeners(self._broker, node.node_id)


class TopicTransport:
    """To a device that subscribed through the broker's MQTT plugin. Its queue has a name of the plugin's own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def is_up(self) -> bool:
        return self._broker.is_linked

    def may_reach(self, node: NodeRow) -> bool:
        return True

    def post(self, node: NodeRow, messages: Sequence[Message], on_sent: OnSent) -> None:
        key = topology.node_topic_key(node.node_id)
        for place, message in enumerate(messages):
            publication = Publication(message=message, key=key, exchange=topology.AMQ_TOPIC)
            post(self._broker, publication, partial(on_sent, range(place, place + 1)), later=True)


_amqp: type[SeenTransport] = AmqpTransport
_topic: type[NodeTransport] = TopicTransport
