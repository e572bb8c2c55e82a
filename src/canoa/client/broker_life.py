"""Whether the broker still is the one that took our messages, or has been restarted since.

A restart takes every transient message along. So we leave one of our own in a queue, and look whether it is still
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import QueueMissing
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from canoa.broker.port import Broker


class BrokerLife:
    def __init__(self, broker: Broker, client_id: str) -> None:
        self._broker = broker
        self._queue = topology.mark_queue(client_id)

    async def begin(self) -> None:
        """Leave the mark."""
        await self._broker.declare(self._queue)
        mark = Message(body=b"", persistent=False, message_id=new_task_id(), type="canoa.mark")
        await self._broker.publish(Publication(message=mark, key=self._queue.name))

    async def goes_on(self) -> bool:
        """The mark is still there. Looking also keeps its queue from expiring."""
        try:
            return (await self._broker.depth(self._queue.name)).messages > 0
        except QueueMissing:
            return False

    async def end(self) -> None:
        await self._broker.delete_queue(self._queue.name)
