"""An action may ask who it is: attempt, deadline, cancel flag, logger, keys. A plain call gets one made up."""

import asyncio
import logging
import time
from typing import Any

import pytest
from tests.integration.pool.pool import until

from canoa import Backoff, Canoa, Context, TaskCancelled


async def test_it_knows_its_task_attempt_and_keys(memory_app: Canoa) -> None:
    @memory_app.action(timeout=20)
    async def tells(ctx: Context, number: int) -> dict[str, Any]:
        return {**ctx.facts(), "number": number, "remaining_s": ctx.remaining_s, "is_cancelled": ctx.is_cancelled}

    async with memory_app.worker() as worker:
        before_s = time.time()
        handle = await tells.submit(7)
        told = await handle.result(10)

    assert (told["task_id"], told["trace_id"]) == (handle.id, handle.id)  # outside any trace it starts its own
    assert (told["action"], told["node_id"]) == ("shop.tells", worker.node_id)
    assert (told["attempt"], told["number"], told["is_cancelled"]) == (1, 7, False)
    assert told["idempotency_key"] == handle.id
    assert before_s + 19 < told["deadline"] <= time.time() + 20
    assert 19 < told["remaining_s"] <= 20


async def test_the_idempotency_key_stays_over_attempts_while_the_attempt_counts(memory_app: Canoa) -> None:
    seen: list[tuple[int, str]] = []

    @memory_app.action(retry=2, backoff=Backoff(first_s=0.01, cap_s=0.01))
    async def fails_twice(ctx: Context) -> int:
        seen.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    async with memory_app.worker():
        assert await fails_twice.using(idempotency_key="order-17").call() == 3

    assert seen == [(1, "order-17"), (2, "order-17"), (3, "order-17")]


async def test_without_a_time_limit_there_is_no_deadline(memory_app: Canoa) -> None:
    @memory_app.action(timeout=None)
    async def tells(ctx: Context) -> list[float | None]:
        return [ctx.deadline, ctx.remaining_s]

    async with memory_app.worker():
        assert await tells.call() == [None, None]


def test_the_time_left_is_never_negative() -> None:
    app = Canoa("shop", broker="memory://")

    @app.action
    def tells(ctx: Context) -> float | None:
        ctx.deadline = time.time() - 5
        return ctx.remaining_s

    assert tells() == 0.0


async def test_its_logger_carries_the_attempts_facts(memory_app: Canoa, caplog: pytest.LogCaptureFixture) -> None:
    @memory_app.action
    async def tells(ctx: Context) -> None:
        ctx.logger.info("resized", width="50%")
        ctx.logger.bind(step=2).warning("odd")

    async with memory_app.worker():
        with caplog.at_level(logging.INFO, "canoa.action"):
            handle = await tells.submit()
            await handle.result(10)

    first, second = [record for record in caplog.records if record.name == "canoa.action"]
    facts = {"task_id": handle.id, "action": "shop.tells", "attempt": 1, "trace_id": handle.id}
    assert first.canoa_facts == {**facts, "width": "50%"}  # type: ignore[attr-defined]
    assert second.canoa_facts == {**facts, "step": 2}  # type: ignore[attr-defined]
    assert first.getMessage().startswith("resized task_id=")
    assert first.getMessage().endswith("width='50%'")


async def test_its_flag_is_up_once_it_is_cancelled(memory_app: Canoa) -> None:
    seen: list[Context] = []

    @memory_app.action
    async def waits(ctx: Context) -> None:
        seen.append(ctx)
        await asyncio.Event().wait()

    async with memory_app.worker():
        handle = await waits.submit()
        await until(lambda: len(seen) == 1)
        assert not seen[0].is_cancelled
        seen[0].raise_if_cancelled()
        await handle.cancel()
        await until(lambda: seen[0].is_cancelled)

    with pytest.raises(TaskCancelled, match=f"task {handle.id} was cancelled or ran over its time"):
        seen[0].raise_if_cancelled()


# --- Plain calls -----------------------------------------------------------------------------------


async def test_a_plain_call_runs_the_function_here_and_now() -> None:
    app = Canoa("shop", broker="amqp://nowhere.invalid")

    @app.action
    async def waits(number: int) -> int:
        """Doubles."""
        await asyncio.sleep(0)
        return number * 2

    @app.action(name="other")
    def plain(number: int) -> int:
        return number * 3

    assert await waits(2) == 4
    assert plain(2) == 6
    assert (waits.__name__, waits.__doc__, plain.name) == ("waits", "Doubles.", "shop.other")
    assert repr(waits) == "<Action shop.waits(number: int)>"


def test_a_plain_call_makes_up_a_context() -> None:
    app = Canoa("shop", broker="memory://")

    @app.action(timeout=5)
    def tells(ctx: Context, number: int) -> list[Any]:
        return [ctx, number]

    context, number = tells(3)

    assert number == 3
    assert (context.attempt, context.deadline, context.node_id, context.action) == (1, None, "local", "shop.tells")
    assert context.idempotency_key == context.task_id
    context.cancel()
    assert context.is_cancelled
