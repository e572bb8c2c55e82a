"""Who takes part: a node for each layer."""

from __future__ import annotations

from typing import NamedTuple

from canoa.vocabulary import Layer


class Node(NamedTuple):
    name: str
    layer: Layer
    site: str
    module: str  # of this folder; its `app` is what the node can do


EDGE = Node("meter-7", Layer.EDGE, "natal", "edge")
NODES = (
    EDGE,
    Node("gateway-2", Layer.FOG, "natal", "fog"),
    Node("office-1", Layer.CLOUD, "recife", "cloud"),
)
