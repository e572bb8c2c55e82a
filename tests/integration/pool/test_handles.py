"""No handle waits for ever, and none is kept longer than somebody needs it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import Gate, opened, until

from canoa import Canoa, DeliveryUnknown, TaskCancelled, TaskExpired, UnknownAction, WrongUse
from canoa.broker.port import Broker, Queue


async def test_handles_that_wait_when_the_app_closes_hear_of_it(app: Canoa) -> None:
    gate = Gate()

    @app.action
    async def held() -> None:
        await gate.hold()

    async with app.worker():
        handle = await held.submit()
        calling = asyncio.create_task(held.call())
        await gate.has(2)

        await app.aclose()

        with pytest.raises(DeliveryUnknown, match=f"the app was closed before task {handle.id}"):
            await handle.result(1)
        with pytest.raises(DeliveryUnknown):
            await calling
        await handle.cancel()  # does nothing, harms nobody
        gate.open()


async def test_a_closed_app_connects_anew_with_the_next_submit(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        assert await double.call(1) == 2
        await app.aclose()
        assert await double.call(2) == 4


async def test_closing_while_connecting_leaves_no_connection_behind(app: Canoa) -> None:
    @app.action
    async def double(number: int) -> int:
        return number * 2

    submitting = asyncio.create_task(double.submit(1))
    await asyncio.sleep(0)
    await app.aclose()

    with pytest.raises((WrongUse, UnknownAction, DeliveryUnknown)):
        await submitting
    assert not [task for task in asyncio.all_tasks() if "session[" in task.get_name()]


async def replace_queue(raw: Broker, name: str) -> None:
    """Delete it, and declare it with other traits before its consumer can declare it again."""
    while True:
        await raw.delete_queue(name)
        try:
            await raw.declare(Queue(name=name, max_length=1))
        except WrongUse:
            continue
        return


async def test_a_session_that_can_no_longer_hear_ends_its_handles_and_the_next_submit_hears_again(app: Canoa) -> None:
    gate = Gate()

    @app.action
    async def held(number: int) -> int:
        await gate.hold()
        return number

    async with app.worker():
        handle = await held.submit(1)
        await gate.has(1)
        session = await app.session()

        async with opened(app) as raw:
            await replace_queue(raw, session._reply_to)

        with pytest.raises(DeliveryUnknown, match=f"results can no longer be received .* before task {handle.id}"):
            await handle.result(10)
        gate.open()
        assert await held.call(2) == 2
        await app.aclose()
        await until(lambda: not [task for task in asyncio.all_tasks() if "session[" in task.get_name()])


async def test_an_abandoned_call_or_submit_leaves_no_handle_behind(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action
    async def held() -> None:
        await gate.hold()

    async with memory_app.worker():
        session = await memory_app.session()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(held.call(), 0.02)
        submitting = asyncio.create_task(held.submit())
        await asyncio.sleep(0)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting

        assert len(session.replies) == 0
        gate.open()


async def test_a_refused_batch_leaves_no_handle_behind(memory_app: Canoa) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    session = await memory_app.session()

    with pytest.raises(UnknownAction):
        await double.submit_many([1, 2, 3])
    with pytest.raises(WrongUse, match="Expected `int`"):
        await double.submit_many([1, 2, "three"])

    assert len(session.replies) == 0


async def test_the_clock_of_a_queue_timeout_ends_with_the_result(memory_app: Canoa) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async with memory_app.worker():
        handle = await double.using(queue_timeout=3600).submit(1)
        assert await handle.result(10) == 2
        forgotten = weakref.ref(handle)

        del handle
        await asyncio.sleep(0)
        gc.collect()

        assert forgotten() is None


async def test_by_the_callers_clock_a_handle_ends_though_no_worker_ever_comes(app: Canoa, raw: Broker) -> None:
    @app.action(timeout=0.05)
    async def double(number: int) -> int:
        return number * 2

    async with app.worker():
        pass

    handle = await double.using(queue_timeout=0.05).submit(1)

    with pytest.raises(TaskExpired, match="was neither started nor refused within its time limits"):
        await handle.result(10)
    await until_holding(raw, "canoa.action.shop.double", 1)


async def test_errors_of_handles_nobody_asked_are_no_noise(memory_app: Canoa) -> None:
    @memory_app.action
    async def fails() -> None:
        raise ValueError

    async with memory_app.worker():
        handle = await fails.submit()
        while not handle.is_done:  # noqa: ASYNC110  # a closure would keep the handle
            await asyncio.sleep(0)
        del handle
        gc.collect()  # a warning here would fail the test


async def test_the_same_error_can_be_asked_for_again(memory_app: Canoa) -> None:
    @memory_app.action
    async def held() -> None: ...

    async with memory_app.worker():
        pass
    handle = await held.submit()
    await handle.cancel()

    for _ in range(10):
        with pytest.raises(TaskCancelled, match="was cancelled by its caller"):
            await handle.result()
    with pytest.raises(TaskCancelled) as caught:
        await handle.result()
    assert len(caught.traceback) < 5  # it does not grow with every question
