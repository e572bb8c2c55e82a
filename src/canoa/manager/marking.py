"""Finds out that the broker was restarted, and sends again what that lost.

Messages to nodes and their answers are not put on disk: the store knows what is out, and a file sync for each would
cost more than the rest of the way. A transient message in a durable queue marks this life of the broker: where it is
gone, so may be whatever was on its way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from canoa.broker.port import Broker

log = get_logger(__name__)

LOOK_EVERY_S: Final = 2.0
WHY: Final = "the broker was restarted"


class Mark:
    """`send_again`: gives all that is out to a node once more; says how much that was. `is_leading`: one manager does
    it for all."""

    def __init__(
        self, broker: Broker, *, is_leading: Callable[[], bool], send_again: Callable[[str], Awaitable[int]]
    ) -> None:
        self._broker = broker
        self._is_leading = is_leading
        self._send_again = send_again

    async def run(self) -> None:
        while True:
            if self._is_leading():
                try:
                    await self.look()
                except CanoaError as exc:
                    log.warning("broker_not_marked", reason=str(exc))
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """The mark is put last: killed in between, the next manager begins anew."""
        if (await self._broker.depth(topology.MANAGERS_MARK)).messages:
            return
        count = await self._send_again(WHY)
        if count:
            log.warning("broker_was_restarted", sent_again=count)
        mark = Message(body=b"", persistent=False, message_id=new_task_id(), type="canoa.mark")
        await self._broker.publish(Publication(message=mark, key=topology.MANAGERS_MARK))
