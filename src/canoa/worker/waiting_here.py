"""What an uplink brought and cannot start yet waits here: it came through no queue that it could wait in, and a broker
that this node also has may be away.

What came through the broker waits there, where it outlives this process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canoa.worker.uplinks.port import UplinkDelivery


class WaitingHere:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timers: dict[UplinkDelivery, asyncio.TimerHandle] = {}
        self._has_ended = False

    def put(self, delivery: UplinkDelivery, wait_s: float) -> None:
        """It comes after so long."""
        if self._has_ended:
            delivery.come()
        else:
            self._timers[delivery] = self._loop.call_later(wait_s, self._let_come, delivery)

    def end(self) -> None:
        """The node leaves: all of them come now, and are given back."""
        self._has_ended = True
        for delivery in list(self._timers):
            self._let_come(delivery)

    def _let_come(self, delivery: UplinkDelivery) -> None:
        self._timers.pop(delivery).cancel()
        delivery.come()
