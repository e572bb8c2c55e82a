"""Whoever holds the lease looks all the time; the others look at the moments that they set themselves."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from canoa.clock import now_ms
from canoa.errors import StoreUnreachable
from canoa.execution.step_moves import StepDue, Verdict
from canoa.manager import timers as timers_module
from canoa.manager.timers import Timers
from canoa.store.port import Lease
from canoa.store.routed_port import Due, Moved
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from canoa.errors import CanoaError


HOUR_MS = 3_600_000


class Rows:
    """Due steps, and who may look for them."""

    def __init__(self, *, is_leased: bool) -> None:
        self.is_leased = is_leased
        self.due: list[Due] = []
        self.looks = 0
        self.trouble = False
        self.is_away = False
        self.looked = asyncio.Event()

    async def due_steps(self, *, now_ms: int, limit: int) -> list[Due]:
        self.looks += 1
        self.looked.set()
        if self.trouble:
            raise StoreUnreachable("no link")
        return [each for each in self.due if each.due_ms <= now_ms][:limit]

    async def open_steps(self, *, limit: int, after: Due | None = None) -> list[Due]:
        known = sorted(self.due, key=lambda each: each.task_id)
        return [each for each in known if after is None or each.task_id > after.task_id][:limit]

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        if self.is_away:
            raise StoreUnreachable("no link")
        return Lease(name=name, owner=owner, epoch=1, expires_ms=now_ms + for_ms) if self.is_leased else None

    async def release(self, name: str, owner: str) -> None:
        self.is_leased = False


class Moves:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.moved: list[StepDue] = []
        self.all_moved = asyncio.Event()

    async def apply(self, move: StepDue) -> Moved:
        self.moved.append(move)
        self.rows.due = [each for each in self.rows.due if each.task_id != move.task_id]
        if not self.rows.due:
            self.all_moved.set()
        return Moved(verdict=Verdict.TAKEN)


class Told:
    """What timers say of the store."""

    def __init__(self) -> None:
        self.written, self.in_trouble = asyncio.Event(), asyncio.Event()

    def on_written(self) -> None:
        self.written.set()

    def on_trouble(self, error: CanoaError) -> None:
        assert isinstance(error, StoreUnreachable)
        self.in_trouble.set()


@asynccontextmanager
async def running(rows: Rows, moves: Any, told: Told | None = None) -> AsyncIterator[Timers]:
    told = told or Told()
    timers = Timers(
        rows,  # type: ignore[arg-type]  # what is used of it
        moves,
        owner="me",
        on_written=told.on_written,
        on_trouble=told.on_trouble,
    )
    work = asyncio.create_task(timers.run())
    yield timers
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


def due(count: int, *, in_ms: int = 0) -> list[Due]:
    return [Due(TaskId(f"task-{number}"), 0, now_ms() + in_ms) for number in range(count)]


async def test_the_one_with_the_lease_moves_all_that_is_due_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers_module, "PAGE", 10)
    rows = Rows(is_leased=True)
    moves = Moves(rows)
    rows.due = due(35)

    async with running(rows, moves):
        await asyncio.wait_for(moves.all_moved.wait(), 5)

    assert len(moves.moved) == 35


async def test_the_others_do_not_look_without_a_reason() -> None:
    rows = Rows(is_leased=False)

    async with running(rows, Moves(rows)):
        await asyncio.sleep(2 * timers_module.LOOK_EVERY_S)  # nothing to await: nothing shall happen

    assert rows.looks == 0


async def test_a_time_that_a_manager_set_itself_is_kept_promptly_without_the_lease() -> None:
    rows = Rows(is_leased=False)
    moves = Moves(rows)
    rows.due = due(1, in_ms=30)

    async with running(rows, moves) as timers:
        timers.note([rows.due[0].due_ms])
        await asyncio.wait_for(moves.all_moved.wait(), 5)

    late_ms = moves.moved[0].now_ms - moves.moved[0].due_ms
    assert 0 <= late_ms < 200


async def test_times_that_are_far_away_are_left_to_the_one_with_the_lease() -> None:
    rows = Rows(is_leased=False)

    async with running(rows, Moves(rows)) as timers:
        timers.note([now_ms() + timers_module.NEAR_MS + 1000])

        assert timers.rings == 0


async def test_many_times_close_together_are_one_look() -> None:
    rows = Rows(is_leased=False)

    async with running(rows, Moves(rows)) as timers:
        at_ms = (now_ms() // timers_module.TICK_MS + 5) * timers_module.TICK_MS
        timers.note([at_ms - each for each in range(timers_module.TICK_MS)])

        assert timers.rings == 1


async def test_a_store_that_is_away_is_asked_again() -> None:
    rows = Rows(is_leased=True)
    moves = Moves(rows)
    rows.trouble, rows.due = True, due(1)

    async with running(rows, moves):
        await asyncio.wait_for(rows.looked.wait(), 5)
        rows.trouble = False
        await asyncio.wait_for(moves.all_moved.wait(), 5)


async def test_a_store_that_is_away_is_told_without_any_work_and_so_is_its_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers_module, "ASK_EVERY_S", 0.0)
    rows, told = Rows(is_leased=False), Told()
    rows.is_away = True

    async with running(rows, Moves(rows), told):
        await asyncio.wait_for(told.in_trouble.wait(), 5)
        assert not told.written.is_set()
        rows.is_away = False
        await asyncio.wait_for(told.written.wait(), 5)


async def test_times_set_by_a_clock_that_was_set_back_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers_module, "PAGE", 10)
    rows = Rows(is_leased=True)
    moves = Moves(rows)
    rows.due = due(25, in_ms=2_000)

    async with running(rows, moves):
        await asyncio.wait_for(rows.looked.wait(), 5)
        assert moves.moved == []
        monkeypatch.setattr(timers_module, "now_ms", lambda: now_ms() - HOUR_MS)
        await asyncio.wait_for(moves.all_moved.wait(), 5)

    assert len(moves.moved) == 25
    assert {round(each.back_ms, -3) for each in moves.moved} == {HOUR_MS}


async def test_a_manager_that_does_not_look_leaves_times_as_they_are_when_its_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows(is_leased=False)
    moves = Moves(rows)
    rows.due = due(3, in_ms=2_000)

    async with running(rows, moves):
        monkeypatch.setattr(timers_module, "now_ms", lambda: now_ms() - HOUR_MS)
        await asyncio.sleep(3 * timers_module.LOOK_EVERY_S)  # nothing to await: nothing shall happen

    assert moves.moved == []
