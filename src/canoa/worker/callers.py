"""How results get to the sessions that wait for them: what ends in one turn of the event loop for the same session goes
there as a bundle. The first of a turn leaves at once, so that a lone result waits for no company.

A result is confirmed before the delivery it answers is acknowledged.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.wire.bundle import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery, Message, PublishOutcome
    from canoa.worker.settling import Settler


class _Owed(NamedTuple):
    message: Message
    reply_to: str
    delivery: Delivery
    if_gone: Callable[[], None]


class Callers:
    """`broker`: the settler's own."""

    def __init__(self, broker: Broker, settler: Settler) -> None:
        self._broker = broker
        self._settler = settler
        self._loop = asyncio.get_running_loop()
        self._is_gathering = False
        self._owed: dict[str, list[_Owed]] = {}  # by session, since this turn of the loop

    def tell(self, reply_to: str, answer: Message, delivery: Delivery, *, if_gone: Callable[[], None]) -> None:
        """Then acknowledge the delivery, which is no longer ours afterwards. `if_gone` decides instead where nobody
        is there to hear it."""
        owed = _Owed(answer, reply_to, delivery, if_gone)
        if not reply_to.startswith(topology.REPLY_PREFIX):  # not one of our sessions: it knows nothing of bundles
            self._tell_alone(owed)
        elif self._is_gathering:
            self._owed.setdefault(reply_to, []).append(owed)
        else:
            self._is_gathering = True
            self._loop.call_soon(self._end_turn)
            self._tell_alone(owed)

    def _end_turn(self) -> None:
        self._is_gathering = False
        gathered, self._owed = self._owed, {}
        for reply_to, owed in gathered.items():
            self._tell_together(reply_to, owed)

    def _tell_together(self, reply_to: str, owed: list[_Owed]) -> None:
        at = 0
        for message, count in packed([each.message for each in owed]):
            together, at = owed[at : at + count], at + count
            if count == 1:
                self._tell_alone(together[0])
            else:
                self._broker.post(Publication(message=message, key=reply_to), partial(self._on_outcome, together))

    def _on_outcome(self, owed: list[_Owed], outcome: PublishOutcome) -> None:
        for each in owed:
            if outcome is None:
                self._settler.done(each.delivery)
            elif each.delivery.is_settled:  # its link is gone: somebody else gets the task
                self._settler.dropped()
            else:  # from here on every result is tried for by itself
                self._tell_alone(each)

    def _tell_alone(self, owed: _Owed) -> None:
        to_caller = Publication(message=owed.message, key=owed.reply_to)
        self._settler.send_then_ack(to_caller, owed.delivery, if_unroutable=owed.if_gone)
