"""Which messages to nodes are compressed: by the rule of the node's layer, where the node reads that and will be told.

A node says in its registration what it reads; one of another make says nothing, and gets every body as published. Over
MQTT 3.1.1 nobody could be told, so nothing is compressed there.
"""

from __future__ import annotations

import sys
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
        self._rules = {layer: rule for layer, rule in policy.rules.items() if rule.algorithm is not None}
        self._least_bytes = min((rule.threshold_bytes for rule in self._rules.values()), default=sys.maxsize)

    def packed(self, node: NodeRow, way: str, messages: Sequence[Message]) -> Sequence[Message]:
        """As they travel: the very same, where none of them is worth it."""
        least_bytes = self._least_bytes
        for message in messages:  # most are small: for those, this is all that is done
            if len(message.body) >= least_bytes:
                return self._packed(node, way, messages)
        return messages

    def _packed(self, node: NodeRow, way: str, messages: Sequence[Message]) -> Sequence[Message]:
        rule = self._rules.get(node.layer)
        if rule is None or rule.algorithm not in node.encodings or way not in TELLING:
            return messages
        if all(len(message.body) < rule.threshold_bytes for message in messages):
            return messages
        return [packed(each, rule) for each in messages]


PLAIN: Final = Compressing(CompressionPolicy({}))
