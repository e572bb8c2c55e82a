"""Places are handed over inside a worker, in order, and none is lost: not by cancelling, not by a late answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import until

from canoa.clock import now_ms
from canoa.worker import slots as slots_module
from canoa.worker.limiter import LocalLimiter, Patient
from canoa.worker.slots import Slot, Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

WITHIN_S = 5.0


class SlowLimiter(LocalLimiter):
    """Counts, and answers when its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.freed: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        self.taken += 1
        is_ours = await super().take_slot(key, holder, limit=limit, now_ms=now_ms, for_ms=for_ms)
        await self.gate.wait()
        return is_ours

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        self.freed += holders
        await super().free_slots(holders)


@pytest.fixture
def limiter() -> SlowLimiter:
    return SlowLimiter()


def new_slots(limiter: LocalLimiter, owner: str = "me", *, room: int = 20) -> Slots:
    return Slots(owner, Patient(limiter), room=room)


async def taken(slots: Slots, key: str = "k", limit: int = 1) -> Slot:
    async with asyncio.timeout(WITHIN_S):
        slot = await slots.take(key, limit)
    assert slot is not None
    return slot


async def is_free(limiter: LocalLimiter, key: str = "k", limit: int = 1) -> bool:
    """As another worker sees it, within a moment."""
    for _ in range(1000):
        if await limiter.take_slot(key, "another", limit=limit, now_ms=now_ms(), for_ms=0):
            return True
        await asyncio.sleep(0)
    return False


async def test_a_place_is_handed_over_in_order_without_asking(limiter: SlowLimiter) -> None:
    slots, order = new_slots(limiter), []

    async def one(number: int) -> None:
        slot = await taken(slots)
        order.append(number)
        await asyncio.sleep(0)
        slots.give(slot)

    await asyncio.gather(*(one(number) for number in range(10)))

    assert order == list(range(10))
    assert limiter.taken == 1
    assert await is_free(limiter)
    await slots.aclose()


async def test_two_workers_never_hold_one_place(limiter: SlowLimiter) -> None:
    mine, yours = new_slots(limiter), new_slots(limiter, "you")
    slot = await taken(mine)
    waiting = asyncio.create_task(yours.take("k", 1))
    await until(lambda: limiter.taken >= 3)  # asked, refused, asked again
    assert not waiting.done()

    mine.give(slot)

    async with asyncio.timeout(WITHIN_S):
        theirs = await waiting
    assert theirs is not None
    yours.give(theirs)
    await mine.aclose()
    await yours.aclose()


async def test_one_asks_for_all_who_wait_here(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)
    limiter.gate.clear()

    waiting = [asyncio.create_task(taken(slots)) for _ in range(5)]
    await until(lambda: limiter.taken == 1)
    limiter.gate.set()

    for each in waiting:
        slots.give(await each)
    assert limiter.taken == 1
    assert await is_free(limiter)
    await slots.aclose()


async def test_as_many_places_are_asked_for_as_there_may_be(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)

    held = await asyncio.gather(*(taken(slots, limit=3) for _ in range(3)))
    fourth = asyncio.create_task(taken(slots, limit=3))
    await asyncio.sleep(0)

    assert not fourth.done()
    assert len({slot.holder for slot in held}) == limiter.taken == 3
    slots.give(held[0])
    for slot in (*held[1:], await fourth):
        slots.give(slot)
    assert await is_free(limiter)
    await slots.aclose()


async def test_only_so_many_wait_here(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter, room=3)
    slot = await taken(slots)
    waiting = [asyncio.create_task(taken(slots)) for _ in range(3)]
    await until(lambda: slots.waiting_for("k") == 3)

    assert await slots.take("k", 1) is None
    assert await slots.take("another key", 1) is not None  # which need not wait

    slots.give(slot)
    for each in waiting:
        slots.give(await each)
    assert await is_free(limiter)
    await slots.aclose()


async def test_cancelled_while_asking_the_place_is_given_back(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)
    limiter.gate.clear()
    asking = asyncio.create_task(slots.take("k", 1))
    await until(lambda: limiter.taken == 1)

    asking.cancel()
    await asyncio.wait([asking])
    limiter.gate.set()

    assert await is_free(limiter)
    await slots.aclose()


async def test_cancelled_in_the_turn_it_was_handed_a_place_that_goes_on(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)
    slot = await taken(slots)
    first, second = asyncio.create_task(slots.take("k", 1)), asyncio.create_task(slots.take("k", 1))
    await asyncio.sleep(0)

    slots.give(slot)
    first.cancel()

    async with asyncio.timeout(WITHIN_S):
        assert await second is slot
    assert first.cancelled()
    slots.give(slot)
    assert await is_free(limiter)
    await slots.aclose()


async def test_a_place_is_renewed_while_it_is_held(limiter: SlowLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "HELD_MS", 150)
    monkeypatch.setattr(slots_module, "RENEW_EVERY_S", 0.03)
    slots = new_slots(limiter)
    slot = await taken(slots)

    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        assert not await LocalLimiter.take_slot(limiter, "k", "another", limit=1, now_ms=now_ms(), for_ms=1)
        await asyncio.sleep(0.01)

    slots.give(slot)
    assert await is_free(limiter)
    await slots.aclose()


async def test_closing_gives_back_what_is_held(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)
    await taken(slots, "a")
    await taken(slots, "b")

    await slots.aclose()

    assert sorted(key for key, _ in limiter.freed) == ["a", "b"]


async def test_closing_while_asking_gives_back_what_may_have_been_taken(limiter: SlowLimiter) -> None:
    slots = new_slots(limiter)
    limiter.gate.clear()
    asking = asyncio.create_task(slots.take("k", 1))
    await until(lambda: limiter.taken == 1)

    await slots.aclose()

    limiter.gate.set()
    assert await is_free(limiter)
    asking.cancel()
