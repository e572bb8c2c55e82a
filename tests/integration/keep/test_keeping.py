"""What `result="keep"` promises."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping, eventually

from canoa import ActionFailed, Canoa, Context, ResultNotReady, TaskCancelled
from canoa.errors import NobodyKeeps, UnknownAction, UnknownTask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.action import ResultMode
    from canoa.wire.event import Event

WITHIN_S = 10.0


async def test_a_result_outlives_its_caller(keeping: Keeping) -> None:
    @keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await keeping.start()
    handle = await double.using(result="keep").submit(21)
    assert await handle.result(WITHIN_S) == 42
    await keeping.app.aclose()

    assert await keeping.app.handle(handle.id).result(WITHIN_S) == 42
    assert [task.id for task in (await keeping.desk.tasks()).tasks] == [handle.id]  # questions are not kept


async def test_a_handle_attached_while_the_task_runs_gets_its_result(keeping: Keeping) -> None:
    may_end = asyncio.Event()

    @keeping.app.action()
    async def waits() -> str:
        await may_end.wait()
        return "done"

    await keeping.start()
    task_id = (await waits.using(result="keep").submit()).id
    attached = keeping.app.handle(task_id, waits)
    with pytest.raises(ResultNotReady):
        await attached.result(0.05)

    waiting = asyncio.ensure_future(attached.result(WITHIN_S))
    await asyncio.sleep(0)
    may_end.set()

    assert await waiting == "done"
    assert (await attached.status()).outcome == "ok"


async def test_an_attached_result_has_the_type_that_the_action_returns(memory_keeping: Keeping) -> None:
    @memory_keeping.app.action()
    async def pair() -> tuple[int, bytes]:
        return 1, b"\x00\xff"

    await memory_keeping.start()
    handle = await pair.using(result="keep").submit()
    await handle.result(WITHIN_S)

    assert await memory_keeping.app.handle(handle.id, pair).result() == (1, b"\x00\xff")


async def test_many_kept_tasks_all_answer(keeping: Keeping) -> None:
    @keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await keeping.start()
    handles = await double.using(result="keep").submit_many(range(300))

    assert [await handle.result(WITHIN_S) for handle in handles] == [2 * number for number in range(300)]
    page = await keeping.desk.tasks(action="shop.double", outcome="ok", limit=500)
    assert len(page.tasks) == 300


async def test_the_same_idempotency_key_is_the_same_task(keeping: Keeping) -> None:
    runs: list[int] = []
    may_end = asyncio.Event()

    @keeping.app.action()
    async def pay(amount: int) -> int:
        runs.append(amount)
        await may_end.wait()
        return amount

    await keeping.start()
    once = pay.using(result="keep", idempotency_key="order-7")
    first = await once.submit(10)
    second = await once.submit(10)
    may_end.set()

    assert first.id == second.id
    assert [await first.result(WITHIN_S), await second.result(WITHIN_S)] == [10, 10]
    late = await once.submit(10)
    assert await late.result(WITHIN_S) == 10
    assert runs == [10]


async def test_keys_of_two_actions_do_not_meet(memory_keeping: Keeping) -> None:
    @memory_keeping.app.action()
    async def pay() -> str:
        return "paid"

    @memory_keeping.app.action()
    async def ship() -> str:
        return "shipped"

    await memory_keeping.start()
    paid = await pay.using(result="keep", idempotency_key="7").submit()
    shipped = await ship.using(result="keep", idempotency_key="7").submit()

    assert (await paid.result(WITHIN_S), await shipped.result(WITHIN_S)) == ("paid", "shipped")


async def test_a_failure_is_kept_with_the_workers_words(keeping: Keeping) -> None:
    @keeping.app.action()
    async def breaks() -> None:
        raise ValueError("no such shelf")

    await keeping.start()
    handle = await breaks.using(result="keep").submit()
    with pytest.raises(ActionFailed, match="no such shelf"):
        await handle.result(WITHIN_S)

    with pytest.raises(ActionFailed) as told:
        await keeping.app.handle(handle.id).result()
    assert str(told.value) == "ValueError: no such shelf"
    assert "in breaks" in told.value.remote_traceback
    status = await keeping.app.handle(handle.id).status()
    assert (status.state, status.outcome, status.attempts) == ("ended", "failed", 1)


async def test_a_cancelled_task_ends_in_the_store_too(keeping: Keeping) -> None:
    started = asyncio.Event()

    @keeping.app.action()
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    await keeping.start()
    handle = await hangs.using(result="keep").submit()
    await started.wait()
    await keeping.app.handle(handle.id).cancel()

    with pytest.raises(TaskCancelled):
        await handle.result(WITHIN_S)
    assert (await keeping.app.handle(handle.id).status()).outcome == "cancelled"


async def test_a_handle_cancels_its_kept_task_for_everybody(keeping: Keeping) -> None:
    started = asyncio.Event()

    @keeping.app.action()
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    await keeping.start()
    handle = await hangs.using(result="keep").submit()
    await started.wait()
    await handle.cancel()

    with pytest.raises(TaskCancelled):
        await keeping.app.handle(handle.id).result(WITHIN_S)


@pytest.mark.parametrize("mode", ["keep", "reply"])
async def test_what_was_cancelled_does_not_run_after_a_restart(memory_keeping: Keeping, mode: ResultMode) -> None:
    @memory_keeping.app.action()
    async def pay(amount: int) -> int:
        return amount

    await memory_keeping.start()
    later = pay.using(result=mode, after=3600)
    handles = [await later.submit(1), *await later.submit_many([2, 3])]
    assert len(await memory_keeping.hosted.recorder.store.unfinished(limit=10)) == 3

    for handle in handles:
        await handle.cancel()

    assert await memory_keeping.hosted.recorder.store.unfinished(limit=10) == []  # what a restart sends again
    assert [task.outcome for task in (await memory_keeping.desk.tasks()).tasks] == ["cancelled"] * 3


async def test_progress_is_seen_while_the_task_runs(keeping: Keeping) -> None:
    may_end = asyncio.Event()

    @keeping.app.action()
    async def resize(ctx: Context) -> None:
        ctx.progress(0.4, "resizing")
        await may_end.wait()

    await keeping.start()
    events = keeping.desk.events(action="shop.resize")
    listening = asyncio.ensure_future(_first(events, "progress"))
    await asyncio.sleep(0)
    handle = await resize.using(result="keep").submit()

    async with asyncio.timeout(WITHIN_S):
        event = await listening
        assert (event.task_id, event.progress, event.text) == (handle.id, 0.4, "resizing")
        await eventually(lambda: _is_running(keeping, handle.id))
    may_end.set()
    await handle.result(WITHIN_S)
    status = await keeping.app.handle(handle.id).status()
    assert (status.progress, status.progress_text) == (0.4, "resizing")


async def _first(events: AsyncIterator[Event], kind: str) -> Event:
    async for event in events:
        if event.kind == kind:
            return event
    raise AssertionError("the stream ended")


async def _is_running(keeping: Keeping, task_id: str) -> bool:
    status = await keeping.app.handle(task_id).status()
    return status.state == "running" and status.progress == 0.4


async def test_a_task_nobody_knows_is_said_to_be_unknown(keeping: Keeping) -> None:
    @keeping.app.action()
    async def idle() -> None: ...

    await keeping.start()

    with pytest.raises(UnknownTask, match="no task 'nowhere' is kept here"):
        await keeping.app.handle("nowhere").result(1)


async def test_what_nobody_offers_is_refused_before_it_is_stored(keeping: Keeping) -> None:
    @keeping.app.action()
    async def idle() -> None: ...

    await keeping.start()
    other = keeping.app.twin("other")

    @other.action()
    async def absent() -> None: ...

    async with other:
        with pytest.raises(UnknownAction):
            await absent.using(result="keep").submit()
    assert (await keeping.desk.tasks()).tasks == []


@pytest.mark.rabbitmq
async def test_where_nobody_keeps_results_a_submit_says_so(rabbit_url: str) -> None:
    app = Canoa("shop", broker=rabbit_url)

    @app.action()
    async def idle() -> None: ...

    async with app.worker(), app:
        with pytest.raises(NobodyKeeps, match="start `canoa recorder`"):
            await idle.using(result="keep").submit()
        with pytest.raises(NobodyKeeps):
            await app.handle("any").result(1)


async def test_a_kept_task_waits_until_it_is_due(keeping: Keeping) -> None:
    @keeping.app.action()
    async def started() -> float:
        return time.time()

    await keeping.start()
    submitted_s = time.time()
    handle = await started.using(result="keep", after=0.4).submit()

    assert (await keeping.app.handle(handle.id).status()).due_at is not None
    assert 0.4 <= await handle.result(WITHIN_S) - submitted_s < 2
