"""One node that is sent canaries, as the leading manager keeps it in mind; and what a look at its queue shows."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from canoa.execution import proof
from canoa.execution.proof import EVERY_S, Place, Proof, View
from canoa.vocabulary import AMQP
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from canoa.broker.port import Depth
    from canoa.store.routed_port import NodeRow


class Watch:
    """As long as this manager leads and the node is the same."""

    __slots__ = ("answered_ms", "instance", "is_taken", "is_unroutable", "request_id", "version", "view", "written")

    def __init__(self, row: NodeRow, now_s: float, answered_ms: int | None) -> None:
        self.instance = row.instance
        self.view = _begun(row, now_s)
        self.written = row.proof
        self.version = row.version
        self.answered_ms = answered_ms  # when it last answered a step, as far as that is known
        self.sends_anew(row.node_id)

    def sends_anew(self, node_id: str) -> None:
        """Canaries have the same id until one is answered: so a late answer counts. It is not to be guessed."""
        self.request_id = sapparchi.canary_id(node_id, os.urandom(8).hex())
        self.is_sent()

    def is_sent(self) -> None:
        self.is_taken = False  # by the broker
        self.is_unroutable = False

    def is_overdue(self, now_s: float) -> bool:
        """What the broker has not taken, nobody can have missed."""
        at_s = proof.overdue_s(self.view)
        return self.is_taken and at_s is not None and now_s >= at_s


def is_watched(row: NodeRow) -> bool:
    return row.takes_canaries and bool(row.actions) and bool(row.protocol)


def place(row: NodeRow, depth: Depth | None, *, is_unroutable: bool) -> Place:
    """`depth`: of the queue that is named after it. What the broker took has a queue, whatever that is called."""
    if row.protocol != AMQP or (depth is None and not is_unroutable):
        return Place.DESERTED if is_unroutable else Place.HIDDEN
    if depth is None:
        return Place.MISSING
    return Place.HEARD if depth.consumers else Place.DESERTED


def _begun(row: NodeRow, now_s: float) -> View:
    """As whoever led before left it. Those that are well are asked one after the other, not all at once."""
    known = Proof(row.proof) if row.proof in frozenset(Proof) else Proof.UNPROVEN
    if known is Proof.ONLINE:
        return View(proof=known, proven_s=now_s - EVERY_S * random.random())
    return View(proof=known, deserted_s=now_s if known is Proof.CUT_OFF else None)
