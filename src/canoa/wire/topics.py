"""Sapparchi's names as MQTT topics: each in both spellings, `sapparchi.nodes.register` and `sapparchi/nodes/register`.

RabbitMQ takes one for the other; other brokers do not, and nobody knows which of them a device uses.
"""

from __future__ import annotations

from typing import Final

SCHEMES: Final = {"mqtt": 1883, "mqtts": 8883}
"""With the port that each has where none is named."""


def spellings(name: str) -> tuple[str, str]:
    """Of a name that is written with dots and has none inside its parts."""
    return name, name.replace(".", "/")


def name_of(topic: str) -> str:
    """The name that a topic spells."""
    return topic.replace("/", ".")


def node_topics(node_id: str) -> tuple[str, str]:
    """Where a node listens. Its id stays as it is: it may have dots."""
    return f"sapparchi.node.{node_id}.in", f"sapparchi/node/{node_id}/in"


def bundle_topic(topic: str) -> str:
    """Beside a topic, for bundles: whoever else listens there knows nothing of those."""
    return f"{topic}/bundles"
