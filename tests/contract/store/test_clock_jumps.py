"""Times are by the clock of whoever asks, and clocks jump: back by an hour, nothing is lost, deleted or held for long.

What no store can undo: after a jump forward, holds and leases end early, and what is older than its retention by the
new time is forgotten. Both are harmless where the jump is shorter than the retention: what is held is idempotent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.store.words import NOW_MS, accepted, applied, end, row

from canoa.store.port import Retention, State

if TYPE_CHECKING:
    from canoa.store.port import Store

HOUR_MS = 3_600_000
HELD_MS = 30_000
KEPT = Retention(task_s=1800.0, payload_s=900.0, letter_s=1800.0)


async def test_what_a_dead_recorder_held_is_free_at_once_when_the_clock_goes_back(store: Store) -> None:
    await accepted(store, "a", outbox=True)
    await store.take_outbox(now_ms=NOW_MS, limit=10, for_ms=HELD_MS)

    taken = await store.take_outbox(now_ms=NOW_MS - HOUR_MS, limit=10, for_ms=HELD_MS)

    assert [held.publication.message.message_id for held in taken] == ["a"]


async def test_clocks_that_differ_a_little_do_not_take_what_the_other_holds(store: Store) -> None:
    await accepted(store, "a", outbox=True)
    await store.take_outbox(now_ms=NOW_MS, limit=10, for_ms=HELD_MS)

    assert await store.take_outbox(now_ms=NOW_MS - HELD_MS // 2, limit=10, for_ms=HELD_MS) == []


async def test_nothing_is_forgotten_too_early_when_the_clock_goes_back(store: Store) -> None:
    await accepted(store, "a", "b")
    await applied(store, end("a", ended_ms=NOW_MS))

    assert await store.forget(KEPT, now_ms=NOW_MS - HOUR_MS, limit=100) == 0

    assert (await row(store, "a")).state is State.ENDED
    assert await store.result((await row(store, "a")).id) is not None


async def test_what_ended_before_the_jump_in_appearance_is_still_kept_for_its_time(store: Store) -> None:
    await accepted(store, "a", at_ms=NOW_MS)

    await applied(store, end("a", ended_ms=NOW_MS - HOUR_MS))

    assert await store.forget(KEPT, now_ms=NOW_MS - HOUR_MS + 1000, limit=100) == 0
    assert (await row(store, "a")).state is State.ENDED


async def test_a_task_that_has_not_ended_is_never_forgotten_however_far_the_clock_jumps(store: Store) -> None:
    await accepted(store, "a")

    assert await store.forget(KEPT, now_ms=NOW_MS + 1000 * HOUR_MS, limit=100) == 0
    assert (await row(store, "a")).state is State.WAITING


async def test_an_owner_renews_its_lease_whatever_its_clock_says(store: Store) -> None:
    await store.lease("forget", "me", now_ms=NOW_MS, for_ms=HELD_MS)

    renewed = await store.lease("forget", "me", now_ms=NOW_MS - HOUR_MS, for_ms=HELD_MS)
    other = await store.lease("forget", "you", now_ms=NOW_MS - HOUR_MS + HELD_MS, for_ms=HELD_MS)

    assert renewed is not None
    assert (renewed.epoch, renewed.expires_ms) == (1, NOW_MS - HOUR_MS + HELD_MS)
    assert other is not None
    assert other.epoch == 2
