"""Moves go through the store in groups, payments go along, and one bad move holds up nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from canoa.errors import StoreUnreachable, WrongUse
from canoa.execution.step_moves import CancelTask, Verdict
from canoa.manager import moving
from canoa.manager.moving import Moving
from canoa.store.routed_port import Moved
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.routed_port import Move


class Book:
    """A store that remembers what it was given, group by group; it refuses a task named `bad`."""

    def __init__(self) -> None:
        self.groups: list[list[Move]] = []
        self.paid: list[str] = []
        self.trouble: Exception | None = None
        self.is_written = asyncio.Event()
        self.is_refused = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def advance(self, moves: Sequence[Move], route: Any, *, paid: Sequence[str], **_: Any) -> list[Moved]:
        await self.may_write.wait()
        if self.trouble is not None:
            self.is_refused.set()
            raise self.trouble
        if any(isinstance(move, CancelTask) and move.task_id == "bad" for move in moves):
            raise WrongUse("a move that no store can keep")
        self.groups.append(list(moves))
        self.paid += paid
        self.is_written.set()
        return [Moved(verdict=Verdict.TAKEN) for _ in moves]


def move(name: str) -> CancelTask:
    return CancelTask(task_id=TaskId(name), now_ms=0)


def new_moving(book: Book, heard: list[Move] | None = None) -> Moving:
    after = [] if heard is None else heard
    return Moving(
        book,  # type: ignore[arg-type]  # what is used of it
        None,  # type: ignore[arg-type]
        lambda moves, _: after.extend(moves),
        ahead=lambda _: None,
    )


async def test_what_comes_while_the_store_is_busy_goes_with_the_next_group() -> None:
    book = Book()
    moves = new_moving(book)
    book.may_write.clear()

    first = asyncio.ensure_future(moves.apply(move("1")))
    await asyncio.sleep(0.01)
    others = [asyncio.ensure_future(moves.apply(move(name))) for name in "234"]
    await asyncio.sleep(0.01)
    book.may_write.set()
    await asyncio.gather(first, *others)

    assert [len(group) for group in book.groups] == [1, 3]


async def test_one_bad_move_does_not_hold_up_its_group() -> None:
    moves = new_moving(Book())

    answers = await asyncio.gather(*(moves.apply(move(name)) for name in ("one", "bad", "two")), return_exceptions=True)

    assert [type(answer) for answer in answers] == [Moved, WrongUse, Moved]


async def test_a_payment_goes_along_with_the_next_move() -> None:
    book = Book()
    moves = new_moving(book)

    moves.pay(["key"])
    await moves.apply(move("1"))

    assert (book.groups, book.paid) == ([[move("1")]], ["key"])
    await moves.aclose()


async def test_payments_that_nothing_goes_along_with_are_written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAY_WITHIN_S", 0.01)
    book = Book()
    moves = new_moving(book)

    moves.pay("abc")

    await asyncio.wait_for(book.is_written.wait(), 5)
    assert book.paid == list("abc")


async def test_payments_wait_for_the_moves_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAY_WITHIN_S", 0.01)
    book = Book()
    moves = new_moving(book)
    book.may_write.clear()
    first = asyncio.ensure_future(moves.apply(move("1")))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(moves.apply(move("2")))
    moves.pay(["key"])
    await asyncio.sleep(0.05)  # its time comes while a move waits

    book.may_write.set()
    await asyncio.gather(first, second)

    assert (book.groups, book.paid) == ([[move("1")], [move("2")]], ["key"])


async def test_payments_of_a_group_that_failed_are_said_again_though_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "PAY_WITHIN_S", 0.02)
    book = Book()
    moves = new_moving(book)
    book.may_write.clear()
    moves.pay(["key"])
    only = asyncio.ensure_future(moves.apply(move("1")))
    await asyncio.sleep(0.05)  # their time comes while they are on their way

    book.trouble = StoreUnreachable("no link")
    book.may_write.set()
    with pytest.raises(StoreUnreachable):
        await only
    book.trouble = None

    await asyncio.wait_for(book.is_written.wait(), 5)
    assert book.paid == ["key"]


async def test_payments_are_not_lost_with_a_group_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAY_WITHIN_S", 0.01)
    book = Book()
    moves = new_moving(book)
    moves.pay(["key"])

    book.trouble = StoreUnreachable("no link")
    with pytest.raises(StoreUnreachable):
        await moves.apply(move("1"))
    book.trouble = None

    await moves.apply(move("2"))
    assert (book.groups, book.paid) == ([[move("2")]], ["key"])


@pytest.mark.parametrize("trouble", [WrongUse("a payment that no store can keep"), RuntimeError("a bug")])
async def test_a_payment_over_which_the_store_fails_is_given_up(
    trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PAY_WITHIN_S", 0.01)
    book = Book()
    moves = new_moving(book)
    book.trouble = trouble
    moves.pay(["bad"])
    await asyncio.wait_for(book.is_refused.wait(), 5)

    book.trouble = None
    await moves.apply(move("1"))

    assert (book.groups, book.paid) == ([[move("1")]], [])


async def test_all_or_nothing_is_one_group_and_each_is_told() -> None:
    book, heard = Book(), list[Any]()
    moves = new_moving(book, heard)

    assert len(await moves.apply_all([move("1"), move("2")])) == 2
    with pytest.raises(WrongUse):
        await moves.apply_all([move("3"), move("bad")])

    assert [len(group) for group in book.groups] == [2]
    assert heard == [move("1"), move("2")]
