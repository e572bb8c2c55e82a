"""A submitted action runs elsewhere and its result comes back, typed; nothing waits for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from tests.integration.pool.pool import Gate

from canoa import (
    ActionFailed,
    Canoa,
    ResultNotReady,
)
from canoa.wire.codec import ContentType


@dataclass
class Picture:
    path: str
    width: int


async def test_a_submitted_action_gives_its_result_typed(app: Canoa) -> None:
    @app.action
    async def resize(path: str, *, width: int = 100) -> Picture:
        return Picture(path, width)

    async with app.worker():
        handle = await resize.submit("a.png", width=80)

        assert await handle.result(timeout=10) == Picture("a.png", 80)
        assert handle.is_done
        assert await handle.result() == Picture("a.png", 80)  # as often as you like
        assert await resize.call("b.png") == Picture("b.png", 100)


async def test_many_are_submitted_in_one_confirmed_batch(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        handles = await double.submit_many([*range(500), double.args(number=1000)])

        assert [await handle.result(10) for handle in handles] == [*range(0, 1000, 2), 2000]


async def test_a_task_waits_for_its_worker(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        pass
    handle = await double.submit(4)
    assert (await app.depth("shop.double")).messages == 1

    async with app.worker():
        assert await handle.result(10) == 8


async def test_the_first_submit_of_many_at_once_opens_one_connection(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        assert await asyncio.gather(*(double.call(number) for number in range(20))) == [*range(0, 40, 2)]


async def test_what_the_action_raised_is_told_in_its_own_words(memory_app: Canoa) -> None:
    @memory_app.action
    async def fails() -> None:
        raise LookupError("no such picture: 50% off")

    async with memory_app.worker():
        with pytest.raises(ActionFailed, match=r"^LookupError: no such picture: 50% off") as caught:
            await fails.call()

    assert (caught.value.error_type, caught.value.attempts) == ("LookupError", 1)
    assert "in fails" in caught.value.remote_traceback
    assert "driving.py" not in caught.value.remote_traceback
    assert caught.value.__notes__ == [f"In the worker:\n{caught.value.remote_traceback.rstrip()}"]


async def test_messagepack_carries_what_json_cannot() -> None:
    app = Canoa("shop", broker="memory://", content_type=ContentType.MSGPACK)

    @app.action
    async def echo(numbers: list[float], raw: bytes) -> tuple[list[float], bytes]:
        return numbers, raw

    async with app, app.worker():
        assert await echo.call([float("inf"), 1.5], b"\x00\xff") == ([float("inf"), 1.5], b"\x00\xff")


async def test_waiting_may_end_before_the_task_and_begin_again(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    async def held() -> str:
        await gate.hold()
        return "done"

    async with memory_app.worker():
        handle = await held.submit()
        with pytest.raises(ResultNotReady, match=rf"task {handle.id} \(shop.held\) has no result after 0.01 s"):
            await handle.result(timeout=0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.result(), 0.01)
        gate.open()
        assert await handle.result(10) == "done"
