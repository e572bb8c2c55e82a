"""Which messages to nodes are compressed: by the rule of the node's layer, where the node reads that and will be told.

A node says in its registration what it reads; one of another make says nothing, and gets every body as published. Over
MQTT 3.1.1 nobody could be told, so nothing is compressed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.vocabulary import AMQP, HTTP, MQTT_LINK
from canoa.wire.compression_policy import CompressionPolicy
from canoa.wire.packing import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Message
    from canoa.store.routed_port import NodeRow

TELLING: Final = frozenset({AMQP, HTTP, MQTT_LINK})
"""Ways by which a body's encoding is told. RabbitMQ's MQTT plugin does not; another MQTT broker brought the node's own
headers, or we would not know what it reads."""


class Compressing:
    def __init__(self, policy: CompressionPolicy) -> None:
        self._policy = policy

    def packed(self, node: NodeRow, way: str, messages: Sequence[Message]) -> Sequence[Message]:
        """As they travel: the very same, where none of them is worth it."""
        rule = self._policy.rules.get(node.layer)
        if rule is None or rule.algorithm is None or rule.algorithm not in node.encodings or way not in TELLING:
            return messages
        least_bytes = rule.threshold_bytes
        for message in messages:  # a plain loop: almost always there is nothing to do, for one or two messages
            if len(message.body) >= least_bytes:
                return [packed(each, rule) for each in messages]
        return messages


PLAIN: Final = Compressing(CompressionPolicy({}))
