"""How one message that no task owes reaches a node: by the same way as its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from canoa.broker import topology
from canoa.broker.port import Message, Publication, PublishOutcome
from canoa.broker.posting import post
from canoa.store.routed_port import MQTT
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from canoa.broker.port import Broker

OnOutcome: TypeAlias = Callable[[PublishOutcome], None]
Reach: TypeAlias = Callable[[NodeId, Message, OnOutcome], None]
"""Send it now, hear later: `Unroutable` where nothing brings it there."""


def reaching(broker: Broker, protocol: Callable[[NodeId], str]) -> Reach:
    """`protocol`: by which a node is reached."""

    def reach(node_id: NodeId, message: Message, on_outcome: OnOutcome) -> None:
        publication = Publication(message=message, exchange=topology.NODE_UNICAST, key="")
        if protocol(node_id) == MQTT:
            key = topology.node_topic_key(node_id)
            publication = Publication(message=message, exchange=topology.AMQ_TOPIC, key=key)
        post(broker, publication, on_outcome)

    return reach
