"""The ways by which managers reach this worker: which of them are closed just now, and that all others say so at once.

Managers would find out by themselves, but only by work that waits for an answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from canoa.logs import get_logger
from canoa.vocabulary import AMQP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.worker.node import Node
    from canoa.worker.uplinks.port import Uplink

log = get_logger(__name__)

LOOK_EVERY_S: Final = 0.25


class OwnWays:
    """`has_broker`: managers are on it."""

    def __init__(self, node: Node, uplinks: Sequence[Uplink], *, has_broker: bool) -> None:
        self._node = node
        self._uplinks = uplinks
        self._has_broker = has_broker

    @property
    def are_several(self) -> bool:
        return len(self._uplinks) + self._has_broker > 1

    def closed(self) -> tuple[str, ...]:
        """None of one alone: nobody could be told."""
        if not self.are_several:
            return ()
        queue = (AMQP,) if self._has_broker and not self._node.is_listening else ()
        return (*queue, *(uplink.way for uplink in self._uplinks if not uplink.is_reachable))

    async def watch(self) -> None:
        """As long as the node is there."""
        known = self.closed()
        while not self._node.is_leaving:
            await asyncio.sleep(LOOK_EVERY_S)
            before, known = known, self.closed()
            if known != before and not self._node.is_leaving:
                say = log.info if set(known) < set(before) else log.warning
                say("ways_changed", node_id=self._node.id, closed=known, before=before)
                self._node.renew()
                for uplink in self._uplinks:
                    uplink.renew()
