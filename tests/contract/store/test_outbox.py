"""The outbox: what must be published is handed to one taker at a time, until it was sent."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import NOW_MS, accept, accepted, applied, ended

from canoa.store.port import Owe, Sent
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import OutboxRow, Store


def ids(rows: list[OutboxRow]) -> list[str | None]:
    return [row.publication.message.message_id for row in rows]


@pytest.fixture
async def owing_three(store: Store) -> Store:
    """Tasks a, b and c must be published."""
    await accepted(store, "a", "b", "c", outbox=True)
    return store


async def test_what_is_accepted_with_a_duty_to_publish_is_taken_in_order(owing_three: Store) -> None:
    first = await owing_three.take_outbox(now_ms=NOW_MS, limit=2, for_ms=1000)
    rest = await owing_three.take_outbox(now_ms=NOW_MS, limit=2, for_ms=1000)

    assert (ids(first), ids(rest)) == (["a", "b"], ["c"])
    assert first[0].publication == accept("a", outbox=True).outbox


async def test_nobody_takes_what_another_one_holds_until_its_time_is_over(owing_three: Store) -> None:
    await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)

    assert await owing_three.take_outbox(now_ms=NOW_MS + 999, limit=10, for_ms=1000) == []
    assert ids(await owing_three.take_outbox(now_ms=NOW_MS + 1000, limit=10, for_ms=1000)) == ["a", "b", "c"]


async def test_what_was_sent_is_never_taken_again(owing_three: Store) -> None:
    a, _, c = await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)

    await applied(owing_three, Sent(seq=a.seq), Sent(seq=c.seq), Sent(seq=a.seq))

    assert ids(await owing_three.take_outbox(now_ms=NOW_MS + 1000, limit=10, for_ms=1000)) == ["b"]


async def test_a_number_is_never_used_twice(owing_three: Store) -> None:
    """A late `Sent` must not take out somebody else's message."""
    taken = await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)
    await applied(owing_three, *(Sent(seq=row.seq) for row in taken))

    await accepted(owing_three, "d", outbox=True)

    (new,) = await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)
    assert new.seq > max(row.seq for row in taken)


async def test_a_task_known_before_owes_nothing_new(owing_three: Store) -> None:
    await applied(owing_three, accept("a", outbox=True))

    assert len(await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)) == 3


async def test_what_a_broker_forgot_is_owed_unless_it_has_ended(owing_three: Store) -> None:
    await accepted(owing_three, "d", "e")
    await ended(owing_three, "e")

    assert [task.id for task in await owing_three.unfinished(limit=10, without_outbox=True)] == ["d"]
    assert await applied(owing_three, owe("d"), owe("e"), owe("unknown")) == [True, False, False]

    assert await owing_three.unfinished(limit=10, without_outbox=True) == []
    assert len(await owing_three.unfinished(limit=10)) == 4
    assert ids(await owing_three.take_outbox(now_ms=NOW_MS, limit=10, for_ms=1000)) == ["a", "b", "c", "d"]


def owe(task_id: str) -> Owe:
    publication = accept(task_id, outbox=True).outbox
    assert publication is not None
    return Owe(task_id=TaskId(task_id), publication=publication)


async def test_several_programs_take_each_message_once(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    names = [f"{number:03}" for number in range(100)]
    await accepted(stores[0], *names, outbox=True)

    async def take_all(store: Store) -> list[str | None]:
        taken: list[str | None] = []
        while rows := await store.take_outbox(now_ms=NOW_MS, limit=7, for_ms=1000):
            taken += ids(rows)
        return taken

    found = await asyncio.gather(*map(take_all, stores))

    assert sorted(filter(None, itertools.chain(*found))) == names
