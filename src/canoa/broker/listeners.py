"""How many listen on a node's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.errors import BrokerRefusedOperation, QueueMissing

if TYPE_CHECKING:
    from canoa.broker.port import Broker


async def listeners(broker: Broker, node_id: str) -> int | None:
    """None: there is no queue that is named after it. Raises `BrokerUnreachable`."""
    try:
        return (await broker.depth(topology.node_queue_name(node_id))).consumers
    except QueueMissing:
        return None
    except BrokerRefusedOperation:
        return 1  # an exclusive queue goes with its owner, so he is there; and what may not be looked at is not judged
