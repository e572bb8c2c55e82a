"""How many listen on a node's queue, and how many messages wait there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Depth
from canoa.errors import BrokerRefusedOperation, QueueMissing

if TYPE_CHECKING:
    from canoa.broker.port import Broker


async def listeners(broker: Broker, node_id: str) -> int | None:
    """None: there is no queue that is named after it. Raises `BrokerUnreachable`."""
    depth = await looked_at(broker, node_id)
    return None if depth is None else depth.consumers


async def looked_at(broker: Broker, node_id: str) -> Depth | None:
    """As above, with what waits there."""
    try:
        return await broker.depth(topology.node_queue_name(node_id))
    except QueueMissing:
        return None
    except BrokerRefusedOperation:
        # An exclusive queue goes with its owner, so he is there; and what may not be looked at is not judged.
        return Depth(messages=0, consumers=1)
