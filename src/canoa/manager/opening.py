"""Bundles that come to a manager, taken apart a few at a time.

A bundle counts as one delivery to the broker, so its prefetch alone would let in a hundred times as much: whatever came
later, and answers above all, would stand behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from canoa.broker.bundled import Whole, opened
from canoa.errors import CanoaError
from canoa.wire.bundle import is_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Delivery

ROOM: Final = 4000
"""Parts in hand before the next bundle waits: what is being written, what gathers behind it, and what is decided
meanwhile. With less the event loop waits for the disk."""

TURN: Final = 500
"""Parts that are taken in one turn of the event loop. Others want theirs; and whatever is decided in a turn is written
together: with more the disk waits for the loop, and then the loop for the disk."""


class Opener:
    """`take` gets whatever came, one by one; `refuse` a delivery that only says that it is a bundle."""

    def __init__(self, take: Callable[[Delivery], None], refuse: Callable[[Delivery, CanoaError], None]) -> None:
        self._take = take
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Delivery] = deque()
        self._open: dict[Whole, int] = {}  # with how many parts each of them brought, the oldest first
        self._in_hand = 0  # their parts, also those that have ended: most end together
        self._taken = 0  # in this turn of the loop
        self._is_turn_coming = False
        self._is_stopped = False

    def on_delivery(self, delivery: Delivery) -> None:
        if not is_bundle(delivery.message):
            self._take(delivery)
        elif not self._is_stopped:
            self._waiting.append(delivery)
            self._open_some()

    def stop(self) -> None:
        """Open no more: what is not, the broker gives to another manager."""
        self._is_stopped = True
        self._waiting.clear()

    def _open_some(self) -> None:
        while self._waiting and self._taken < TURN and self._has_room():
            delivery = self._waiting.popleft()
            if not delivery.is_settled:
                self._open_in_next_turn()
                self._take_apart(delivery)

    def _open_in_next_turn(self) -> None:
        if not self._is_turn_coming:
            self._is_turn_coming = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_coming = False
        self._taken = 0
        self._open_some()

    def _has_room(self) -> bool:
        # Those whose link is gone never end here: their parts are somebody else's. What came since stands behind them.
        while self._open and (oldest := next(iter(self._open))).delivery.is_settled:
            self._forget(oldest)
        return self._in_hand < ROOM

    def _on_end(self, whole: Whole) -> None:
        self._forget(whole)
        self._open_in_next_turn()

    def _forget(self, whole: Whole) -> None:
        self._in_hand -= self._open.pop(whole, 0)

    def _take_apart(self, delivery: Delivery) -> None:
        try:
            parts = opened(delivery, now_s=self._loop.time(), on_end=self._on_end)
        except CanoaError as exc:
            self._refuse(delivery, exc)
            return
        self._open[parts[0].whole] = len(parts)
        self._in_hand += len(parts)
        self._taken += len(parts)
        for part in parts:
            self._take(part)
