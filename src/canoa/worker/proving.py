"""A node proves that it hears: it answers managers' canaries at its door, and sends itself one when nothing came.

A canary of its own leaves by the link that publishes and comes back by the one that consumes, through its own queue.
One that does not come back, though the broker took it, twice in a row: the node is deaf. It listens anew, and if that
does not help it ends loudly, for a supervisor to start it again. While the broker takes nothing it is cut off, and
waits.
"""

from __future__ import annotations

import asyncio
import enum
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from canoa.broker import topology
from canoa.broker.listeners import looked_at
from canoa.broker.port import Publication
from canoa.errors import CanoaError, NodeDeaf, Unroutable
from canoa.logs import get_logger
from canoa.wire import canary, sapparchi
from canoa.worker.uplinks.port import brought_by_uplink

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery, PublishOutcome
    from canoa.wire.sapparchi import NodeMessage
    from canoa.worker.node import Node

log = get_logger(__name__)

ANSWER_WITHIN_S: Final = 5.0
MISSES: Final = 2
"""In a row. One may go with a link that is cut just then."""
RENEWALS: Final = 1
"""How often it listens anew before it gives up: what one does not mend, the next will not."""


class _Came(enum.Enum):
    """What became of a canary."""

    BACK = enum.auto()
    NOT = enum.auto()
    UNKNOWN = enum.auto()  # the broker did not take it, or does not answer: we are cut off


class OwnProof:
    """`quiet_s`: how long nothing may come through the queue until it is tried. `in_hand`: deliveries that are not
    settled."""

    def __init__(self, broker: Broker, node: Node, *, quiet_s: float, in_hand: Callable[[], int]) -> None:
        self.is_deaf = False
        self._broker = broker
        self._node = node
        self._quiet_s = quiet_s
        self._in_hand = in_hand
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._is_heard = asyncio.Event()
        self._is_cut_off = False
        self._request_id = ""  # of the canary that is out

    # --- Hearing ------------------------------------------------------------------------------------------

    def heard(self) -> None:
        """Something came through the queue, whatever it is."""
        self._heard_s = self._loop.time()
        self._is_heard.set()

    def on_canary(self, request: NodeMessage, delivery: Delivery) -> None:
        """Answered at once, and not in a lane: a busy node is not deaf."""
        delivery.settle()
        if request.request_id != self._request_id:
            answer = canary.answer(request, self._node.id, reply_to=delivery.message.reply_to)
            brought = brought_by_uplink(delivery)
            if brought is not None:
                brought.uplink.send(answer.message, _ignored)
            else:
                self._broker.post(answer, _ignored)

    # --- Trying -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """As long as the node does. Raises `NodeDeaf` where listening anew does not help."""
        while not self._node.is_leaving:
            quiet_for_s = self._loop.time() - self._heard_s
            if quiet_for_s < self._quiet_s:
                await asyncio.sleep(self._quiet_s - quiet_for_s)
            else:
                await self._prove()
                self._heard_s = self._loop.time()

    async def _prove(self) -> None:
        for _ in range(RENEWALS):
            if await self._hears():
                return
            self._say_deaf()
            await self._node.listen_anew()
        if not await self._hears():
            self._say_deaf()
            raise NodeDeaf(self._node.id)

    async def _hears(self) -> bool:
        missed = 0
        while missed < MISSES and not self._node.is_leaving:
            match await self._asked():
                case _Came.BACK:
                    self._say_well()
                    return True
                case _Came.NOT:
                    missed += 1
                case _Came.UNKNOWN:
                    missed = 0
                    await asyncio.sleep(self._quiet_s)
        return self._node.is_leaving

    async def _asked(self) -> _Came:
        self._is_heard.clear()
        self._request_id = sapparchi.canary_id(self._node.id, os.urandom(8).hex())
        message = canary.canary(self._node.id, self._request_id, reply_to=None)
        try:
            await self._broker.publish(Publication(message=message, exchange=topology.NODE_UNICAST, key=""))
        except Unroutable:
            return _Came.NOT  # its queue, or what binds it, was taken away
        except CanoaError as exc:
            self._say_cut_off(exc)
            return _Came.UNKNOWN
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._is_heard.wait()
        return _Came.BACK if self._is_heard.is_set() else await self._looked()

    async def _looked(self) -> _Came:
        """It may wait behind work that fills our hands. Whoever can look at the queue has a link."""
        try:
            depth = await looked_at(self._broker, self._node.id)
        except CanoaError as exc:
            self._say_cut_off(exc)
            return _Came.UNKNOWN
        is_full = depth is not None and depth.messages and depth.consumers and self._in_hand()
        return _Came.BACK if is_full or self._is_heard.is_set() else _Came.NOT

    # --- Saying so ----------------------------------------------------------------------------------------

    def _say_deaf(self) -> None:
        self.is_deaf = True
        log.error("worker_is_deaf", node_id=self._node.id, reason="what it sends to its own queue does not come back")

    def _say_well(self) -> None:
        if self.is_deaf or self._is_cut_off:
            log.warning("worker_hears_again", node_id=self._node.id)
        self.is_deaf = self._is_cut_off = False

    def _say_cut_off(self, why: CanoaError) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            log.warning("worker_is_cut_off", node_id=self._node.id, reason=str(why))


def _ignored(_: PublishOutcome) -> None:
    """Whoever asked asks again."""
