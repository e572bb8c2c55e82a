"""Turns come in order, at the rate, with few questions; nothing starts while the limiter is silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.integration.pool.pool import until

from canoa.errors import StoreUnreachable
from canoa.execution.policy import Rate
from canoa.worker import limiter as limiter_module
from canoa.worker.limiter import LocalLimiter, Patient
from canoa.worker.turns import Turns


class CountingLimiter(LocalLimiter):
    """Counts questions, and answers none while it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.is_away = False

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        self.asked += 1
        if self.is_away:
            raise StoreUnreachable("no link")
        return await super().reserve(key, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=within_ms)


def wanted() -> bool:
    return True


def turns_under(rate: Rate) -> tuple[Turns, CountingLimiter]:
    limiter = CountingLimiter()
    return Turns("rate:a", rate, Patient(limiter)), limiter


async def test_turns_come_in_order_and_at_the_rate() -> None:
    turns, limiter = turns_under(Rate("100/s"))
    loop, came = asyncio.get_running_loop(), []

    async def one(number: int) -> None:
        await turns.take(wanted)
        came.append((number, loop.time()))

    await asyncio.gather(*(one(number) for number in range(101)))

    assert [number for number, _ in came] == list(range(101))
    assert came[-1][1] - came[0][1] == pytest.approx(1.0, abs=0.1)
    assert limiter.asked <= 12


async def test_single_tasks_do_not_ask_more_often_than_ten_times_a_second() -> None:
    turns, limiter = turns_under(Rate("1000/s"))
    loop = asyncio.get_running_loop()
    began_s, taken = loop.time(), 0

    while loop.time() - began_s < 1.0:
        await turns.take(wanted)
        taken += 1

    assert limiter.asked <= 12
    assert taken >= 8


async def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    turns, _ = turns_under(Rate("1/s"))
    await turns.take(wanted)
    leaving, staying = asyncio.create_task(turns.take(wanted)), asyncio.create_task(turns.take(wanted))
    await asyncio.sleep(0)

    leaving.cancel()
    async with asyncio.timeout(1.9):  # the second start after the first, not the third
        await staying

    with suppress(asyncio.CancelledError):
        await leaving


async def test_what_is_no_longer_wanted_uses_no_start() -> None:
    turns, _ = turns_under(Rate("1/s"))
    await turns.take(wanted)
    unwanted, staying = asyncio.create_task(turns.take(lambda: False)), asyncio.create_task(turns.take(wanted))

    async with asyncio.timeout(1.9):  # the second start after the first, not the third
        assert await staying
    assert not await unwanted


async def test_rare_starts_are_waited_for_without_reserving_far_ahead() -> None:
    turns, limiter = turns_under(Rate("1/h"))
    await turns.take(wanted)

    waiting = asyncio.create_task(turns.take(wanted))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await asyncio.shield(waiting)
    assert limiter.asked <= 3

    waiting.cancel()
    turns.stop()


async def test_nothing_starts_while_the_limiter_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "REPEAT_AFTER_S", 0.01)
    turns, limiter = turns_under(Rate("1000/s"))
    limiter.is_away = True

    waiting = asyncio.create_task(turns.take(wanted))
    await until(lambda: limiter.asked >= 4)
    assert not waiting.done()

    limiter.is_away = False
    async with asyncio.timeout(5):
        await waiting
