"""A failed attempt is repeated as often as its policy says, after a while; the rest is told to the caller."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from tests.integration.pool.pool import sample, until

from canoa import ActionFailed, ActionTimedOut, Backoff, Canoa, DoNotRetry

SOON = Backoff(first_s=0.05, cap_s=0.05)


async def test_an_action_that_fails_is_tried_again_until_it_succeeds(app: Canoa) -> None:
    began: list[float] = []

    @app.action(retry=3, backoff=SOON)
    async def third_time_lucky() -> int:
        began.append(time.monotonic())
        if len(began) < 3:
            raise ConnectionError("not yet")
        return len(began)

    async with app.worker() as worker:
        assert await third_time_lucky.call() == 3

    assert all(later - earlier >= 0.09 for earlier, later in pairwise(began))  # a rung's wait
    assert sample(worker, "canoa_retries_total", action="shop.third_time_lucky") == 2
    counted = {"action": "shop.third_time_lucky", "layer": "CLOUD"}
    assert sample(worker, "canoa_actions_total", outcome="retried", **counted) == 2
    assert sample(worker, "canoa_actions_total", outcome="ok", **counted) == 1


async def test_after_its_last_retry_the_failure_is_told(app: Canoa) -> None:
    runs = 0

    @app.action(retry=2, backoff=SOON)
    async def fails() -> None:
        nonlocal runs
        runs += 1
        raise ValueError(f"run {runs}")

    async with app.worker():
        with pytest.raises(ActionFailed, match="ValueError: run 3") as caught:
            await fails.call()

    assert (runs, caught.value.attempts) == (3, 3)


@pytest.mark.parametrize("is_thread", [False, True])
async def test_an_action_can_say_that_another_try_is_pointless(memory_app: Canoa, is_thread: bool) -> None:
    runs: list[int] = []

    def gives_up() -> None:
        runs.append(1)
        raise DoNotRetry("the file is gone")

    async def gives_up_async() -> None:
        gives_up()

    action = memory_app.action(name="gives_up", retry=5)(gives_up if is_thread else gives_up_async)
    async with memory_app.worker():
        with pytest.raises(ActionFailed, match="DoNotRetry: the file is gone") as caught:
            await action.call()

    assert (len(runs), caught.value.attempts) == (1, 1)


async def test_a_time_out_is_tried_again_like_any_failure(memory_app: Canoa) -> None:
    runs = 0

    @memory_app.action(retry=1, timeout=0.02, backoff=SOON)
    async def slow_at_first() -> str:
        nonlocal runs
        runs += 1
        await asyncio.sleep(5 if runs == 1 else 0)
        return "in time"

    async with memory_app.worker():
        assert await slow_at_first.call() == "in time"

    assert runs == 2


async def test_no_retry_is_made_that_would_start_after_the_deadline(memory_app: Canoa) -> None:
    @memory_app.action(retry=5, backoff=Backoff(first_s=30))
    async def fails() -> None:
        raise ValueError("now, not later")

    async with memory_app.worker():
        async with asyncio.timeout(5):
            with pytest.raises(ActionFailed, match="now, not later"):
                await fails.using(queue_timeout=10).call()


async def test_another_worker_may_take_the_retry(app: Canoa) -> None:
    ran_on: list[str] = []

    @app.action(retry=1, backoff=SOON)
    async def fails_once() -> None:
        task = asyncio.current_task()
        ran_on.append("" if task is None else task.get_name())
        if len(ran_on) == 1:
            raise ValueError

    async with app.worker():
        handle = await fails_once.submit()
        await until(lambda: len(ran_on) == 1)
    async with app.worker():
        await handle.result(10)

    assert len(ran_on) == 2


async def test_the_last_time_out_is_told_as_one(memory_app: Canoa) -> None:
    @memory_app.action(retry=1, timeout=0.01, backoff=SOON)
    async def slow() -> None:
        await asyncio.sleep(5)

    async with memory_app.worker():
        with pytest.raises(ActionTimedOut, match=r"ran longer than its timeout of 0.01 s"):
            await slow.call()
