"""Many changes in one transaction, and none of them suffers for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa.broker.port import Message
from canoa.errors import StoreUnreachable, WrongUse
from canoa.store.grouping import GROUP, SOON, Grouping, GroupWriter
from canoa.store.opening import new_store
from canoa.store.port import Accept, Accepted, NewTask
from canoa.vocabulary import ActionName, TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from canoa.errors import CanoaError
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


# --- A store that takes the next group before it has answered for the last ----------------------------------------


class Eager:
    """It answers when told to; `bad` cannot be kept."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.ends: list[Callable[[Sequence[str] | Exception], None]] = []
        self.error: Exception | None = None

    def start(
        self, changes: Sequence[str], on_end: Callable[[Sequence[str] | Exception], None], *, is_hurried: bool
    ) -> None:
        self.groups.append(list(changes))
        self.ends.append(on_end)

    async def apply(self, changes: Sequence[str]) -> list[str]:
        if "bad" in changes:
            raise WrongUse("no store can keep it")
        return [f"{each} alone" for each in changes]


async def test_the_first_of_a_turn_starts_at_once_and_those_that_follow_together() -> None:
    eager = Eager()
    heard: list[str | CanoaError] = []
    grouping: Grouping[str, str] = Grouping(eager, start=eager.start)

    for each in "abc":
        grouping.post(each, heard.append)
    assert eager.groups == [["a"]]
    await asyncio.sleep(0)
    grouping.post("d", heard.append)

    assert eager.groups == [["a"], ["b", "c"], ["d"]]
    for on_end, group in zip(eager.ends, eager.groups, strict=True):
        on_end([each.upper() for each in group])
    assert heard == ["A", "B", "C", "D"]
    await asyncio.wait_for(grouping.aclose(), 5)


async def test_many_of_a_turn_do_not_wait_for_its_end() -> None:
    eager = Eager()
    grouping: Grouping[str, str] = Grouping(eager, start=eager.start)

    for number in range(2 * SOON):
        grouping.post(str(number), lambda _: None)

    assert [len(group) for group in eager.groups] == [1, SOON]
    await asyncio.sleep(0)
    assert [len(group) for group in eager.groups] == [1, SOON, SOON - 1]


async def test_closing_waits_for_what_was_started() -> None:
    eager = Eager()
    grouping: Grouping[str, str] = Grouping(eager, start=eager.start)
    grouping.post("a", lambda _: None)
    grouping.post("b", lambda _: None)
    closing = asyncio.create_task(grouping.aclose())
    await asyncio.sleep(0.01)
    assert not closing.done()

    for on_end in eager.ends:
        on_end(["x"])

    await asyncio.wait_for(closing, 5)


async def test_of_a_started_group_only_the_change_that_cannot_be_kept_is_refused() -> None:
    eager = Eager()
    grouping: Grouping[str, str] = Grouping(eager, start=eager.start)
    heard: list[str | CanoaError] = []
    for each in ("a", "b", "bad", "c"):
        grouping.post(each, heard.append)
    await asyncio.sleep(0)
    eager.ends[0](["A"])
    eager.ends[1](WrongUse("one of them"))
    await asyncio.wait_for(grouping.aclose(), 5)

    assert [each if isinstance(each, str) else type(each) for each in heard] == ["A", "b alone", WrongUse, "c alone"]


async def test_a_store_that_is_away_is_told_to_all_of_a_started_group() -> None:
    eager = Eager()
    grouping: Grouping[str, str] = Grouping(eager, start=eager.start)
    heard: list[str | CanoaError] = []
    grouping.post("a", heard.append)
    eager.ends[0](StoreUnreachable("away"))

    assert [type(each) for each in heard] == [StoreUnreachable]
    await asyncio.wait_for(grouping.aclose(), 5)


async def test_a_store_that_cannot_start_is_an_answer() -> None:
    def closed(*_: object, **__: object) -> None:
        raise StoreUnreachable("closed")

    grouping: Grouping[str, str] = Grouping(Eager(), start=closed)
    heard: list[str | CanoaError] = []
    grouping.post("a", heard.append)
    grouping.post_all(["b"], lambda answers: heard.append(answers))  # type: ignore[arg-type]

    assert [type(each) for each in heard] == [StoreUnreachable, StoreUnreachable]
    await asyncio.wait_for(grouping.aclose(), 5)
