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
"""Parts that are taken in one turn of the event loop: others want theirs."""


class Opener:
    """`take` gets whatever came, one by one; `refuse` a delivery that only says that it is a bundle."""

    def __init__(self, take: Callable[[Delivery], None], refuse: Callable[[Delivery, CanoaError], None]) -> None:
        self._take = take
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Delivery] = deque()
        self._open: dict[Whole, int] = {}  # with how many parts each of them brought, the oldest first
        self._in_hand = 0  # their parts, also those that have ended: most end together
        self._is_opening = False
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
        if self._is_opening:  # one that ended at once, of which the loop below knows
            return
        self._is_opening = True
        try:
            taken = 0
            while self._waiting and self._has_room():
                if taken >= TURN:
                    self._loop.call_soon(self._open_some)
                    break
                delivery = self._waiting.popleft()
                if not delivery.is_settled:
                    taken += self._take_apart(delivery)
        finally:
            self._is_opening = False

    def _has_room(self) -> bool:
        # Those whose link is gone never end here: their parts are somebody else's. What came since stands behind them.
        while self._open and (oldest := next(iter(self._open))).delivery.is_settled:
            self._forget(oldest)
        return self._in_hand < ROOM

    def _on_end(self, whole: Whole) -> None:
        self._forget(whole)
        self._open_some()

    def _forget(self, whole: Whole) -> None:
        self._in_hand -= self._open.pop(whole, 0)

    def _take_apart(self, delivery: Delivery) -> int:
        """Says how many parts it had."""
        try:
            parts = opened(delivery, now_s=self._loop.time(), on_end=self._on_end)
        except CanoaError as exc:
            self._refuse(delivery, exc)
            return 0
        self._open[parts[0].whole] = len(parts)
        self._in_hand += len(parts)
        for part in parts:
            self._take(part)
        return len(parts)
