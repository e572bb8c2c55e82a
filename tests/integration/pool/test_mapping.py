"""`map` streams results as they come, with a bounded number in flight, from sources that may never end."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import Gate, until

from canoa import ActionFailed, ArgumentsRefused, Canoa, UnknownAction
from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source:
    """Numbers for ever; remembers how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        for number in itertools.count():
            self.taken += 1
            yield number


async def test_every_call_gives_one_result(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        results = [result async for result in double.map(range(2000))]

        assert sorted(results) == [*range(0, 4000, 2)]
        assert [result async for result in double.map([])] == []


async def test_results_come_as_they_are_ready_not_in_order(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    async def hold_the_first(number: int) -> int:
        if number == 0:
            await gate.hold()
        return number

    async with memory_app.worker():
        stream = hold_the_first.map(range(4))
        early = [await anext(stream) for _ in range(3)]
        gate.open()

        assert sorted(early) == [1, 2, 3]
        assert await anext(stream) == 0


@pytest.mark.parametrize("in_flight", [1, 2, 3, 10, 300])
async def test_as_many_as_allowed_are_in_flight_and_never_more(memory_app: Canoa, in_flight: int) -> None:
    source, gate = Source(), Gate()

    @memory_app.action
    async def held(number: int) -> int:
        await gate.hold()
        return number

    async with memory_app.worker(concurrency=1000):
        stream = held.map(source, in_flight=in_flight)
        first = asyncio.ensure_future(anext(stream))
        await gate.has(in_flight)
        assert source.taken == in_flight
        gate.open()
        await first
        for given in range(2, 3 * in_flight):
            await anext(stream)
            assert source.taken - given <= in_flight


async def test_one_slow_call_does_not_stop_the_others(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    async def hold_the_first(number: int) -> int:
        if number == 0:
            await gate.hold()
        return number

    async with memory_app.worker():
        stream = hold_the_first.map(itertools.count(), in_flight=2)

        assert [await anext(stream) for _ in range(20)] == [*range(1, 21)]
        gate.open()


async def test_an_endless_source_can_be_left_at_any_time(app: Canoa) -> None:
    source, ran = Source(), 0

    @app.action
    async def double(number: int) -> int:
        nonlocal ran
        ran += 1
        return number * 2

    async with app.worker():
        results = []
        async for result in double.map(source, in_flight=10):
            results.append(result)
            if len(results) == 50:
                break

        assert source.taken <= 60
        await until(lambda: ran == source.taken)  # what was submitted runs; nothing more is taken


async def test_the_first_failure_is_raised(memory_app: Canoa) -> None:
    @memory_app.action
    async def picky(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    async with memory_app.worker():
        with pytest.raises(ActionFailed, match="ValueError: three"):
            async for _ in picky.map(range(10)):
                pass


async def test_errors_can_be_results_those_of_refused_arguments_too(memory_app: Canoa) -> None:
    @memory_app.action
    async def picky(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    async with memory_app.worker():
        results = [result async for result in picky.map([1, 3, "four", 5], return_errors=True)]

    assert {type(result) for result in results} == {int, ActionFailed, ArgumentsRefused}
    assert sorted(result for result in results if isinstance(result, int)) == [1, 5]


async def test_refused_arguments_are_raised_before_their_batch_is_sent(memory_app: Canoa) -> None:
    ran: list[int] = []

    @memory_app.action
    async def note(number: int) -> None:
        ran.append(number)

    async with memory_app.worker():
        with pytest.raises(ArgumentsRefused, match=r"shop.note: Expected `int`, got `str`, at `\$.number`"):
            async for _ in note.map([1, 2, "three"]):
                pass

    assert ran == []


async def test_a_map_of_an_action_nobody_offers_is_refused(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(UnknownAction, match=r"'shop.double'"):
        await anext(double.map(range(10)))


@pytest.mark.parametrize("in_flight", [0, -1, 1.5])
def test_a_window_without_room_is_refused(in_flight: int) -> None:
    app = Canoa("shop", broker="memory://")

    @app.action
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(SettingError, match=f"in_flight={in_flight}: use 1"):
        double.map([1], in_flight=in_flight)


async def test_calls_may_have_several_arguments(memory_app: Canoa) -> None:
    @memory_app.action
    async def join(first: str, *, second: str = "-") -> str:
        return first + second

    async with memory_app.worker():
        calls = [join.args("a", second="b"), join.args("c"), "d"]

        assert sorted([result async for result in join.map(calls)]) == ["ab", "c-", "d-"]
