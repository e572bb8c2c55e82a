"""Who may act, and how often: leases with epochs, rates, slots."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import NOW_MS

from canoa.store.port import Lease

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import Store

YEAR_MS = 365 * 86_400_000


async def take(store: Store, owner: str, *, at_ms: int = NOW_MS) -> Lease | None:
    return await store.lease("timers", owner, now_ms=at_ms, for_ms=1000)


async def test_a_lease_has_one_owner(store: Store) -> None:
    assert await take(store, "me") == Lease(name="timers", owner="me", epoch=1, expires_ms=NOW_MS + 1000)
    assert await take(store, "you") is None
    assert await store.lease("other", "you", now_ms=NOW_MS, for_ms=1000) is not None


async def test_renewing_a_lease_keeps_its_epoch(store: Store) -> None:
    await take(store, "me")

    assert await take(store, "me", at_ms=NOW_MS + 500) == Lease(
        name="timers", owner="me", epoch=1, expires_ms=NOW_MS + 1500
    )
    assert await take(store, "you", at_ms=NOW_MS + 1499) is None


async def test_the_epoch_grows_with_every_new_owner(store: Store) -> None:
    await take(store, "me")

    second = await take(store, "you", at_ms=NOW_MS + 1000)
    third = await take(store, "me", at_ms=NOW_MS + 2000)

    assert second is not None
    assert third is not None
    assert (second.epoch, third.epoch) == (2, 3)


async def test_a_released_lease_is_free_at_once_and_its_epoch_goes_on(store: Store) -> None:
    await take(store, "me")

    await store.release("timers", "you")
    assert await take(store, "you") is None
    await store.release("timers", "me")

    taken = await take(store, "you")
    assert taken is not None
    assert taken.epoch == 2


async def test_of_several_programs_one_gets_the_lease(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    taken = await asyncio.gather(*(take(store, f"owner-{number}") for number, store in enumerate(stores)))

    assert sum(lease is not None for lease in taken) == 1


async def test_the_last_owner_of_a_lease_is_known_also_when_it_has_expired(store: Store) -> None:
    assert await store.holder("timers") is None

    taken = await take(store, "me")
    assert await store.holder("timers") == taken

    await store.release("timers", "me")
    assert await store.holder("timers") == Lease(name="timers", owner="", epoch=1, expires_ms=0)


async def test_a_lease_taken_by_a_clock_a_year_ahead_is_free(store: Store) -> None:
    await take(store, "me", at_ms=NOW_MS + YEAR_MS)

    taken = await take(store, "you")

    assert taken == Lease(name="timers", owner="you", epoch=2, expires_ms=NOW_MS + 1000)


async def test_a_lease_taken_by_a_clock_that_is_a_little_ahead_holds(store: Store) -> None:
    await take(store, "me", at_ms=NOW_MS + 1000)

    assert await take(store, "you") is None


async def reserve(store: Store, count: int = 1, *, burst: int = 1, at_ms: int = NOW_MS, within_ms: int = 10**6) -> int:
    """At a rate of ten per second."""
    return await store.reserve("mail", count=count, per_ms=100, burst=burst, now_ms=at_ms, within_ms=within_ms)


async def test_starts_are_reserved_one_after_the_other(store: Store) -> None:
    assert [await reserve(store), await reserve(store, 3), await reserve(store)] == [NOW_MS, NOW_MS + 100, NOW_MS + 400]


async def test_a_reservation_too_far_away_reserves_nothing(store: Store) -> None:
    await reserve(store, 10)

    assert await reserve(store, within_ms=999) == -1
    assert await reserve(store, within_ms=1000) == NOW_MS + 1000


async def test_a_pause_allows_a_burst_and_no_more(store: Store) -> None:
    """A time in the past: the first three may start at once."""
    first = await reserve(store, 3, burst=3)
    assert first == NOW_MS - 200

    assert await reserve(store, burst=3) == NOW_MS + 100
    later_ms = NOW_MS + 10_000
    assert await reserve(store, burst=3, at_ms=later_ms) == later_ms - 200


async def test_a_rate_may_be_finer_than_a_millisecond(store: Store) -> None:
    starts = [
        await store.reserve("fine", count=1000, per_ms=0.4, burst=1, now_ms=NOW_MS, within_ms=10_000) for _ in range(3)
    ]

    assert starts == [NOW_MS, NOW_MS + 400, NOW_MS + 800]


async def test_several_programs_never_exceed_the_rate(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]

    async def some(store: Store) -> list[int]:
        return [await reserve(store, 2) for _ in range(10)]

    starts = itertools.chain(*await asyncio.gather(*map(some, stores)))

    assert sorted(starts) == [NOW_MS + 200 * number for number in range(30)]


async def test_a_rate_reserved_by_a_clock_a_year_ahead_blocks_nobody(store: Store) -> None:
    await reserve(store, 10, at_ms=NOW_MS + YEAR_MS, within_ms=2000)

    assert [await reserve(store, within_ms=2000) for _ in range(2)] == [NOW_MS, NOW_MS + 100]


async def test_a_rate_reserved_by_a_clock_that_is_a_little_ahead_holds(store: Store) -> None:
    await reserve(store, 10, at_ms=NOW_MS + 5000, within_ms=2000)

    assert await reserve(store, within_ms=2000) == -1


async def slot(store: Store, holder: str, *, limit: int = 2, at_ms: int = NOW_MS) -> bool:
    return await store.take_slot("customer:1", holder, limit=limit, now_ms=at_ms, for_ms=1000)


async def test_a_key_has_as_many_slots_as_its_limit(store: Store) -> None:
    assert [await slot(store, holder) for holder in "abc"] == [True, True, False]
    assert await store.take_slot("customer:2", "c", limit=1, now_ms=NOW_MS, for_ms=1000)


async def test_a_freed_slot_is_taken_by_the_next(store: Store) -> None:
    await slot(store, "a")
    await slot(store, "b")

    await store.free_slots([("customer:1", "a"), ("customer:1", "nobody"), ("customer:2", "b")])

    assert await slot(store, "c")
    assert not await slot(store, "a")


async def test_a_slot_expires_unless_its_holder_renews_it(store: Store) -> None:
    await slot(store, "a")
    await slot(store, "b")

    assert await slot(store, "a", at_ms=NOW_MS + 900)

    assert await slot(store, "c", at_ms=NOW_MS + 1000)
    assert not await slot(store, "d", at_ms=NOW_MS + 1000)


async def test_a_slot_held_by_a_clock_a_year_ahead_is_free(store: Store) -> None:
    """Its holder is dead, or renews it by the right clock."""
    assert await slot(store, "a", limit=1, at_ms=NOW_MS + YEAR_MS)

    assert await slot(store, "b", limit=1)
    assert not await slot(store, "a", limit=1)


async def test_several_programs_never_share_a_slot(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    taken = await asyncio.gather(*(slot(stores[number % 4], f"holder-{number}") for number in range(20)))

    assert sum(taken) == 2


@pytest.mark.parametrize("count", [0, 1])
async def test_freeing_nothing_or_what_nobody_holds_is_fine(store: Store, count: int) -> None:
    await store.free_slots([("customer:1", "a")] * count)
