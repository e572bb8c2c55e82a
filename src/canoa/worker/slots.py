"""Places under concurrency keys, held while tasks run.

A place that is free again goes to the next task of its key that waits in this worker, in order; with none, back to the
limiter. A worker that dies renews nothing, and its places are free for others `HELD_MS` later.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.errors import CanoaError
from canoa.logs import get_logger
from canoa.worker.limiter import now_ms

if TYPE_CHECKING:
    from canoa.worker.limiter import Limiter, Patient

log = get_logger(__name__)

HELD_MS: Final = 30_000
"""Longer bridges longer silences of the store, and keeps what a killed worker held for longer."""

RENEW_EVERY_S: Final = HELD_MS / 3000

WAIT_HERE: Final = 16
"""How many tasks of one key wait in a worker. More would fill its hands, and other keys could not come."""

RETURN_FIRST_S: Final = 0.25
RETURN_CAP_S: Final = 5.0

MAX_CROWDED: Final = 10_000

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

    __slots__ = ("asking", "held", "waiting")

    def __init__(self) -> None:
        self.asking = 0
        self.held = 0
        self.waiting: deque[asyncio.Future[Slot | None]] = deque()


class Slots:
    def __init__(self, owner: str, patient: Patient) -> None:
        self._owner = owner
        self._patient = patient
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._places: dict[str, _Place] = {}
        self._held: set[Slot] = set()
        self._freed: list[tuple[str, str]] = []
        self._crowded_since_s: dict[str, float] = {}
        self._freeing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    # --- Taking and giving --------------------------------------------------------------------------

    async def take(self, key: str, limit: int) -> Slot | None:
        """A place, or None while others have them all. Waits for those that are held here."""
        place = self._places.setdefault(key, _Place())
        try:
            if place.held + place.asking < limit and not place.waiting:
                slot = await self._ask(place, key, limit)
            elif len(place.waiting) < WAIT_HERE:
                slot = await self._wait(place)
            else:
                slot = None
        finally:
            self._tidy(key, place)
        if slot is None:
            self._note_crowd(key)
        return slot

    async def _ask(self, place: _Place, key: str, limit: int) -> Slot | None:
        slot = Slot(key, f"{self._owner}:{next(self._numbers)}", limit)
        place.asking += 1
        try:
            is_ours = await self._patient.ask(partial(_take, slot))
        except asyncio.CancelledError:
            self._free(slot)  # it may have been taken
            raise
        finally:
            place.asking -= 1
        if is_ours:
            place.held += 1
            self._hold(slot)
            self._crowded_since_s.pop(key, None)
            return slot
        if not place.held and not place.asking:  # nobody here will hand over a place
            for waiting in place.waiting:
                if not waiting.done():
                    waiting.set_result(None)
        return None

    async def _wait(self, place: _Place) -> Slot | None:
        waiting: asyncio.Future[Slot | None] = self._loop.create_future()
        place.waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and (slot := waiting.result()) is not None:
                self.give(slot)  # handed over in the very turn in which we were told to go
            raise
        finally:
            with suppress(ValueError):
                place.waiting.remove(waiting)

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
        if not place.held and not place.asking and not place.waiting and self._places.get(key) is place:
            del self._places[key]

    # --- Coming back --------------------------------------------------------------------------------

    def come_back_s(self, key: str) -> float:
        """When to try again what found no place: later the longer its key has been crowded, so that a long queue under
        one key does not go round in circles."""
        since_s = self._crowded_since_s.get(key)
        crowded_s = 0.0 if since_s is None else time.monotonic() - since_s
        return min(max(RETURN_FIRST_S, crowded_s / 4), RETURN_CAP_S)

    def _note_crowd(self, key: str) -> None:
        if len(self._crowded_since_s) >= MAX_CROWDED:
            del self._crowded_since_s[next(iter(self._crowded_since_s))]
        self._crowded_since_s.setdefault(key, time.monotonic())

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
