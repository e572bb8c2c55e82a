"""A node proves that it hears: it answers managers' canaries at its door, and sends itself one when nothing came.

A canary of its own goes to its own queue, or topic (`ears.py`); on AMQP it leaves by the link that publishes and comes
back by the one that consumes. One that does not come back, though the broker took it, twice in a row: the node is deaf.
It listens anew, and if that does not help it ends loudly, for a supervisor to start it again. While the broker takes
nothing it is cut off, and waits. One that may not send to itself does not try for long: it might lose its link by it.
"""

from __future__ import annotations

import asyncio
import enum
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from canoa.errors import CanoaError, NodeDeaf, Unroutable
from canoa.logs import get_logger
from canoa.wire import canary, sapparchi
from canoa.worker.ears import NotAllowed
from canoa.worker.uplinks.port import brought_by_uplink

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery, PublishOutcome
    from canoa.wire.sapparchi import NodeMessage
    from canoa.worker.ears import Ear
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
    REFUSED = enum.auto()  # we may not send it


class _CannotTell(Exception):
    """Whether the node hears."""


class OwnProof:
    """`ear`: None: there is none that it could try. `quiet_s`: how long nothing may come by it until it is tried."""

    def __init__(self, broker: Broker, node: Node, ear: Ear | None, *, quiet_s: float) -> None:
        self.is_deaf = False
        self._broker = broker
        self._node = node
        self._ear = ear
        self._can_tell = ear is not None and ear.is_certain
        self._quiet_s = quiet_s
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._is_heard = asyncio.Event()
        self._is_cut_off = False
        self._request_id = ""  # of the canary that is out

    # --- Hearing ------------------------------------------------------------------------------------------

    def heard(self) -> None:
        """Something came by the ear, whatever it is."""
        self._heard_s = self._loop.time()
        self._is_heard.set()

    def on_canary(self, request: NodeMessage, delivery: Delivery) -> None:
        """Answered at once, and not in a lane: a busy node is not deaf."""
        delivery.settle()
        if request.request_id == self._request_id:
            self._can_tell = True
        else:
            answer = canary.answer(request, self._node.id, reply_to=delivery.message.reply_to)
            brought = brought_by_uplink(delivery)
            if brought is not None:
                brought.uplink.send(answer.message, _ignored)
            else:
                self._broker.post(answer, _ignored)

    # --- Trying -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """As long as the node does, and can tell. Raises `NodeDeaf` where listening anew does not help."""
        if self._ear is not None:
            try:
                await self._prove_on(self._ear)
            except _CannotTell:
                self._say_blind(self._ear)

    async def _prove_on(self, ear: Ear) -> None:
        while not self._node.is_leaving:
            quiet_for_s = self._loop.time() - self._heard_s
            if quiet_for_s < self._quiet_s:
                await asyncio.sleep(self._quiet_s - quiet_for_s)
            else:
                await self._prove(ear)
                self._heard_s = self._loop.time()

    async def _prove(self, ear: Ear) -> None:
        for _ in range(RENEWALS):
            if await self._hears(ear):
                return
            self._say_deaf()
            await ear.listen_anew()
        if not await self._hears(ear):
            self._say_deaf()
            raise NodeDeaf(self._node.id, ear.remedy)

    async def _hears(self, ear: Ear) -> bool:
        """Raises `_CannotTell`."""
        missed = refused = 0
        while max(missed, refused) < MISSES and not self._node.is_leaving:
            match await self._asked(ear):
                case _Came.BACK:
                    self._say_well()
                    return True
                case _Came.NOT:
                    missed += 1
                case _Came.UNKNOWN:
                    missed = 0
                    await asyncio.sleep(self._quiet_s)
                case _Came.REFUSED:
                    refused += 1
                    await asyncio.sleep(self._quiet_s)
        if not self._node.is_leaving and (refused >= MISSES or not self._can_tell):
            raise _CannotTell
        return self._node.is_leaving

    async def _asked(self, ear: Ear) -> _Came:
        self._is_heard.clear()
        self._request_id = sapparchi.canary_id(self._node.id, os.urandom(8).hex())
        message = canary.canary(self._node.id, self._request_id, reply_to=None)
        try:
            await ear.ask(message)
        except Unroutable:
            return _Came.NOT  # its queue, or what binds it, was taken away
        except NotAllowed:
            return _Came.REFUSED
        except CanoaError as exc:
            self._say_cut_off(exc)
            return _Came.UNKNOWN
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._is_heard.wait()
        return _Came.BACK if self._is_heard.is_set() else await self._looked(ear)

    async def _looked(self, ear: Ear) -> _Came:
        try:
            is_waiting = await ear.is_waiting()
        except CanoaError as exc:
            self._say_cut_off(exc)
            return _Came.UNKNOWN
        return _Came.BACK if is_waiting or self._is_heard.is_set() else _Came.NOT

    # --- Saying so ----------------------------------------------------------------------------------------

    def _say_deaf(self) -> None:
        self.is_deaf = True
        log.error("worker_is_deaf", node_id=self._node.id, reason="what it sends to itself does not come back")

    def _say_well(self) -> None:
        if self.is_deaf or self._is_cut_off:
            log.warning("worker_hears_again", node_id=self._node.id)
        self.is_deaf = self._is_cut_off = False

    def _say_blind(self, ear: Ear) -> None:
        self.is_deaf = False
        log.warning("worker_cannot_prove_itself", node_id=self._node.id, remedy=ear.remedy)

    def _say_cut_off(self, why: CanoaError) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            log.warning("worker_is_cut_off", node_id=self._node.id, reason=str(why))


def _ignored(_: PublishOutcome) -> None:
    """Whoever asked asks again."""
