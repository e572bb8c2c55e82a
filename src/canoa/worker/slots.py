"""Places under concurrency keys, held while tasks run.

A place that is free again goes to the next task of its key that waits in this worker, in order; with none, back to the
limiter. While other workers have them all, one asks again for everybody who waits here. A worker that dies renews
nothing, and its places are free for others `HELD_MS` later.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from contextlib import suppress
from functools import partial
from random import random
from typing import TYPE_CHECKING, Final

from canoa.clock import now_ms
from canoa.errors import CanoaError
from canoa.logs import get_logger

if TYPE_CHECKING:
    from canoa.worker.limiter import Limiter, Patient

log = get_logger(__name__)

HELD_MS: Final = 30_000
"""Longer bridges longer silences of the store, and keeps what a killed worker held for longer."""

RENEW_EVERY_S: Final = HELD_MS / 3000

ASK_AGAIN_S: Final = 0.05
ASK_AGAIN_CAP_S: Final = 1.0
"""Between two questions for one key that others hold, doubling. Shorter hands over sooner, and costs the store more."""

FREE_WITHIN_S: Final = 2.0


class Slot:
    """One place under a key, by the name it is held under."""

    __slots__ = ("holder", "key", "limit")

    def __init__(self, key: str, holder: str, limit: int) -> None:
        self.key = key
        self.holder = holder
        self.limit = limit


class _Place:
    """What this worker has to do with one key."""

    __slots__ = ("asking", "held", "is_refused", "waiting")

    def __init__(self) -> None:
        self.asking: asyncio.Task[None] | None = None
        self.held = 0
        self.is_refused = False  # the last question was: others have them all
        self.waiting: deque[asyncio.Future[Slot]] = deque()


class Slots:
    """`room`: how many tasks may wait here that cannot start yet. More would fill the worker's hands with them."""

    def __init__(self, owner: str, patient: Patient, *, room: int) -> None:
        self._owner = owner
        self._patient = patient
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._places: dict[str, _Place] = {}
        self._waiting = 0
        self._held: set[Slot] = set()
        self._freed: list[tuple[str, str]] = []
        self._freeing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    # --- Taking and giving --------------------------------------------------------------------------

    async def take(self, key: str, limit: int) -> Slot | None:
        """A place, once there is one. None: too many wait here already."""
        place = self._places.setdefault(key, _Place())
        if self._waiting >= self._room and (place.is_refused or place.held >= limit):
            return None
        waiting: asyncio.Future[Slot] = self._loop.create_future()
        place.waiting.append(waiting)
        self._waiting += 1
        if place.asking is None and place.held < limit:
            place.asking = self._loop.create_task(self._ask(key, place, limit), name=f"slots.ask[{key}]")
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self.give(waiting.result())  # handed over in the very turn in which we were told to go
            raise
        finally:
            self._waiting -= 1
            with suppress(ValueError):
                place.waiting.remove(waiting)
            self._tidy(key, place)

    async def _ask(self, key: str, place: _Place, limit: int) -> None:
        """For everybody who waits here, until they have what they may have."""
        wait_s = ASK_AGAIN_S
        try:
            while place.waiting and place.held < limit:
                slot = Slot(key, f"{self._owner}:{next(self._numbers)}", limit)
                place.is_refused = not await self._is_granted(slot)
                if place.is_refused:
                    await asyncio.sleep(wait_s * (0.5 + random()))
                    wait_s = min(2 * wait_s, ASK_AGAIN_CAP_S)
                else:
                    place.held += 1
                    self._hold(slot)
                    self.give(slot)
        finally:
            place.asking = None
            self._tidy(key, place)

    async def _is_granted(self, slot: Slot) -> bool:
        try:
            return await self._patient.ask(partial(_take, slot))
        except asyncio.CancelledError:
            self._free(slot)  # it may have been taken
            raise

    def give(self, slot: Slot) -> None:
        """To the next one that waits here, or back."""
        place = self._places[slot.key]
        while place.waiting:
            waiting = place.waiting.popleft()
            if not waiting.done():
                waiting.set_result(slot)
                return
        place.held -= 1
        self._held.discard(slot)
        self._free(slot)
        self._tidy(slot.key, place)

    def _tidy(self, key: str, place: _Place) -> None:
        if not place.held and place.asking is None and not place.waiting:
            self._places.pop(key, None)

    def waiting_for(self, key: str) -> int:
        return len(self._places[key].waiting) if key in self._places else 0

    # --- Renewing and freeing -------------------------------------------------------------------------

    def _hold(self, slot: Slot) -> None:
        self._held.add(slot)
        if self._renewing is None:
            self._renewing = self._loop.create_task(self._renew(), name="slots.renew")

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            for slot in list(self._held):
                if slot in self._held:
                    await self._renew_one(slot)

    async def _renew_one(self, slot: Slot) -> None:
        """A place that was lost cannot be won back from whoever has it; the task goes on."""
        try:
            is_ours = await _take(slot, self._patient.limiter)
        except CanoaError as exc:
            self._patient.on_silence(exc)
            return
        if slot not in self._held:
            self._free(slot)  # given back meanwhile, and now taken anew
        elif not is_ours:
            log.warning("slot_lost", key=slot.key)

    def _free(self, slot: Slot) -> None:
        """Together with whatever else is given back meanwhile."""
        self._freed.append((slot.key, slot.holder))
        if self._freeing is None:
            self._freeing = self._loop.create_task(self._free_all(), name="slots.free")

    async def _free_all(self) -> None:
        try:
            while self._freed:
                freed, self._freed = self._freed, []
                await self._patient.ask(partial(_free, freed))
        finally:
            self._freeing = None

    async def aclose(self) -> None:
        """Give back what is left. What cannot be told in time is free when it is no longer renewed."""
        if self._renewing is not None:
            self._renewing.cancel()
        asking = [place.asking for place in self._places.values() if place.asking is not None]
        for each in asking:
            each.cancel()  # what it may have taken is given back, too
        if asking:
            await asyncio.wait(asking, timeout=FREE_WITHIN_S)
        for slot in list(self._held):
            self._held.discard(slot)
            self._free(slot)
        if self._freeing is not None:
            await asyncio.wait([self._freeing], timeout=FREE_WITHIN_S)
        if self._freeing is not None:
            self._freeing.cancel()


async def _free(freed: list[tuple[str, str]], limiter: Limiter) -> None:
    await limiter.free_slots(freed)


async def _take(slot: Slot, limiter: Limiter) -> bool:
    return await limiter.take_slot(slot.key, slot.holder, limit=slot.limit, now_ms=now_ms(), for_ms=HELD_MS)
