"""A delayed task waits in the broker: never started early, hardly late, refused where nobody would ever run it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import Gate, sample, send, until

from canoa import Canoa, Context, TaskCancelled, TaskExpired, UnknownAction
from canoa.testing.rabbitmq import RabbitNode

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.broker.port import Broker

LATE_S = 0.15 + 0.35
"""What is promised, and what a busy test machine may add."""


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.7, 1.3])
async def test_a_delayed_task_starts_when_it_is_due_and_never_before(app: Canoa, after_s: float) -> None:
    @app.action
    async def when() -> float:
        return time.time()

    async with app.worker():
        due_s = time.time() + after_s
        handle = await when.using(after=after_s).submit()
        began_s = await handle.result(10)

    assert due_s <= began_s <= due_s + LATE_S


async def test_a_time_can_be_given_with_its_zone(app: Canoa) -> None:
    @app.action
    async def when() -> float:
        return time.time()

    async with app.worker():
        due = datetime.now(UTC) + timedelta(seconds=0.3)
        began_s = await when.using(at=due).call()

    assert due.timestamp() <= began_s <= due.timestamp() + LATE_S


async def test_many_are_delayed_together(app: Canoa) -> None:
    @app.action
    async def when(number: int) -> float:
        return time.time()

    async with app.worker():
        due_s = time.time() + 0.4
        handles = await when.using(after=0.4).submit_many(range(50))
        began_s = [await handle.result(10) for handle in handles]
        mapped_due_s = time.time() + 0.2
        mapped_s = [began async for began in when.using(after=0.2).map(range(20))]

    assert min(began_s) >= due_s
    assert max(began_s) <= due_s + LATE_S
    assert min(mapped_s) >= mapped_due_s


async def test_a_wait_is_neither_an_attempt_nor_a_crash_nor_queue_time(app: Canoa) -> None:
    seen: list[tuple[int, float]] = []

    @app.action(retry=3, max_crashes=1)
    async def note(ctx: Context) -> None:
        seen.append((ctx.attempt, time.time()))

    async with app.worker() as worker:
        await note.using(after=0.8).call()

    assert [attempt for attempt, _ in seen] == [1]
    assert sample(worker, "canoa_retries_total", action="shop.note") == 0
    assert sample(worker, "canoa_action_queue_seconds_sum", action="shop.note") < LATE_S


async def test_a_delayed_task_of_an_action_nobody_offers_is_refused(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return 2 * number

    delayed = double.using(after=5)

    with pytest.raises(UnknownAction, match=r"no worker has ever offered action 'shop.double' on this broker; "):
        await delayed.submit(1)
    with pytest.raises(UnknownAction):
        await delayed.call(1)
    with pytest.raises(UnknownAction):
        await delayed.submit_many([1, 2])


async def test_a_task_cancelled_while_it_waits_is_skipped(app: Canoa) -> None:
    ran: list[int] = []

    @app.action
    async def note(number: int) -> None:
        ran.append(number)

    async with app.worker() as worker:
        first, second = [await note.using(after=0.5).submit(number) for number in (1, 2)]
        await first.cancel()
        with pytest.raises(TaskCancelled):
            await first.result()
        await second.result(10)

        counted = {"action": "shop.note", "layer": "CLOUD"}
        await until(lambda: sample(worker, "canoa_actions_total", outcome="cancelled", **counted) == 1)
    assert ran == [2]


async def test_queue_time_counts_from_the_due_time(app: Canoa) -> None:
    gate = Gate()

    @app.action(timeout=None)
    async def held() -> None:
        await gate.hold()

    async with app.worker(concurrency=1):
        in_time = await held.using(after=0.3, queue_timeout=0.25).submit()
        await gate.has(1)
        late = await held.using(after=0.1, queue_timeout=0.1).submit()
        await asyncio.sleep(0.25)
        gate.open()

        await in_time.result(10)
        with pytest.raises(TaskExpired):
            await late.result(10)
    assert gate.came == 1


async def test_the_callers_clock_ends_a_delayed_handle_after_its_due_time(memory_app: Canoa) -> None:
    @memory_app.action(timeout=0.01)
    async def never() -> None: ...

    async with memory_app.worker():
        pass  # declares the queue; afterwards nobody takes from it
    began_s = time.monotonic()
    handle = await never.using(after=0.5, queue_timeout=0.01).submit()
    with pytest.raises(TaskExpired):
        await handle.result(10)

    assert time.monotonic() - began_s >= 0.5 + 0.01 + 0.01


async def test_another_program_can_delay_with_a_header(app: Canoa, raw: Broker) -> None:
    began: list[float] = []

    @app.action
    async def note() -> None:
        began.append(time.time())

    async with app.worker():
        due_ms = int((time.time() + 0.4) * 1000)
        await send(raw, "shop.note", message_id="theirs", headers={"canoa-due": due_ms})
        await until(lambda: bool(began))

    assert due_ms / 1000 <= began[0] <= due_ms / 1000 + LATE_S


@pytest.mark.rabbitmq
async def test_a_delayed_task_survives_a_killed_broker(tmp_path: Path) -> None:
    node = RabbitNode(tmp_path / "node", schedulers=1)
    await asyncio.to_thread(node.start)
    app = Canoa("shop", broker=node.url())

    @app.action
    async def double(number: int) -> int:
        return 2 * number

    try:
        async with asyncio.timeout(90), app, app.worker():
            submitted = await double.using(after=3).submit(1)
            called = asyncio.ensure_future(double.using(after=3).call(2))
            await asyncio.sleep(0.5)  # the call's confirm
            await asyncio.to_thread(node.kill)
            await asyncio.to_thread(node.start)

            assert (await submitted.result(), await called) == (2, 4)
    finally:
        await asyncio.to_thread(node.kill)
