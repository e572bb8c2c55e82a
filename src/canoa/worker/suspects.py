"""Tasks that may have ended a worker, each run with nothing else in it: a crash can then only be its own doing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.port import Delivery
    from canoa.worker.gate import Gate, Permit
    from canoa.worker.lane import Lane
    from canoa.worker.offer import Offer
    from canoa.worker.running import Runner
    from canoa.worker.settling import Settler

MEET_S: Final = 0.05
"""How far apart suspects may come that one crash made such, and how long an acknowledgement takes to leave."""


class Suspects:
    """`lanes`: where everything else runs. `spawn` starts a task of the worker's, by a name."""

    def __init__(
        self,
        runner: Runner,
        settler: Settler,
        gate: Gate,
        lanes: Sequence[Lane[Any]],
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._runner = runner
        self._settler = settler
        self._gate = gate
        self._lanes = lanes
        self._spawn = spawn
        self._postponed: list[Delivery] = []  # those that may still be in hand
        self._is_stopping = False
        self.is_running = False

    def take(self, offer: Offer, delivery: Delivery) -> None:
        """One at a time in the whole worker: a second one in hand would look guilty of the first one's crash."""
        self._settler.took()
        if self._is_stopping:
            offer.hand_back(delivery)
        elif self.is_running:
            self._postponed = [*self.postponed(), delivery]
            offer.postpone(delivery)
        else:
            self.is_running = True
            self._spawn(self._run(offer, delivery), "suspect")

    def stop(self) -> None:
        """Run no more of them."""
        self._is_stopping = True

    def postponed(self) -> list[Delivery]:
        """Those that the broker still takes for ours."""
        return [each for each in self._postponed if not each.is_settled]

    async def _run(self, offer: Offer, delivery: Delivery) -> None:
        permit: Permit | None = None
        try:
            if offer.is_limited:
                permit = await self._gate.pass_suspect(offer, delivery)
                if permit is None:
                    return
            if not delivery.redelivered:
                for lane in self._lanes:
                    await lane.pause()
                await self._no_other()
            if self._is_stopping or delivery.is_settled:
                offer.hand_back(delivery)  # or not even that, when its link is gone
            else:
                await self._runner.handle(offer, delivery, is_suspect=True)
        finally:
            if permit is not None:
                permit.release()
            self.is_running = False
            if not self._is_stopping:
                for lane in self._lanes:
                    lane.resume()

    async def _no_other(self) -> None:
        """Several that met in one worker come again together: those that were postponed are acknowledged first."""
        while True:
            await asyncio.sleep(MEET_S)
            self._postponed = self.postponed()
            if not self._postponed:
                return
