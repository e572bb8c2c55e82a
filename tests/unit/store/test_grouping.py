"""Many changes in one transaction, and none of them suffers for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa.broker.port import Message
from canoa.errors import WrongUse
from canoa.store.grouping import GROUP, GroupWriter
from canoa.store.opening import new_store
from canoa.store.port import Accept, Accepted, NewTask
from canoa.vocabulary import ActionName, TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from canoa.store.port import Answer, Change, Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = new_store(f"sqlite:///{tmp_path}/canoa.db")
    await store.open()
    yield store
    await store.aclose()


def accept(number: int, *, submitted_ms: int = 1) -> Accept:
    message = Message(body=b"{}", message_id=str(number))
    task = NewTask(
        id=TaskId(f"task-{number}"), action=ActionName("shop.sell"), message=message, submitted_ms=submitted_ms
    )
    return Accept(task=task)


async def test_what_comes_together_is_written_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = store.apply

    async def counted(changes: Sequence[Change]) -> list[Answer]:
        sizes.append(len(changes))
        return await real(changes)

    monkeypatch.setattr(store, "apply", counted)
    writer = GroupWriter(store)

    answers = await asyncio.gather(*(writer.apply(accept(number)) for number in range(GROUP + 10)))

    assert answers == [Accepted(is_new=True)] * (GROUP + 10)
    assert sizes == [GROUP, 10]


async def test_a_change_that_no_store_can_keep_is_refused_alone(store: Store) -> None:
    writer = GroupWriter(store)
    changes = [accept(1), accept(2, submitted_ms=2**80), accept(3)]

    answers = await asyncio.gather(*map(writer.apply, changes), return_exceptions=True)

    assert [type(answer) for answer in answers] == [Accepted, WrongUse, Accepted]
    assert await store.task(TaskId("task-3")) is not None


async def test_what_was_given_before_the_end_is_still_written(store: Store) -> None:
    writer = GroupWriter(store)
    heard: list[object] = []
    writer.post(accept(1), heard.append)

    await writer.aclose()

    assert heard == [Accepted(is_new=True)]
