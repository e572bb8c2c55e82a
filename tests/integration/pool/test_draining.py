"""A worker leaves in good order: what runs may finish, the rest goes back untouched, and all of it within a bound."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import Gate, taken, until

from canoa import Canoa, DeliveryUnknown
from canoa.broker import topology
from canoa.errors import SettingError, WrongUse
from canoa.wire import task
from canoa.worker.settings import WorkerSettings
from canoa.worker.worker import Worker

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery

QUEUE = topology.action_queue_name("shop.held")


def is_untouched(delivery: Delivery) -> bool:
    """As if no worker had ever had it."""
    return not delivery.redelivered and task.CRASHES not in delivery.message.headers


async def test_running_ones_finish_and_unstarted_ones_go_back_uncounted(app: Canoa, raw: Broker) -> None:
    gate = Gate()

    @app.action
    async def held(number: int) -> int:
        await gate.hold()
        return number

    async with app.worker(concurrency=2):
        handles = await held.submit_many(range(10))
        await gate.has(2)
        asyncio.get_running_loop().call_later(0.1, gate.open)  # while the worker drains

    assert gate.came == 2
    done = [handle for handle in handles if handle.is_done]
    assert sorted([await handle.result() for handle in done]) == [0, 1]
    deliveries = await taken(raw, QUEUE, 8)
    assert all(is_untouched(delivery) for delivery in deliveries)
    assert {delivery.message.message_id for delivery in deliveries} == {each.id for each in handles if not each.is_done}


async def test_nothing_starts_in_the_place_of_what_ends_while_the_worker_leaves(app: Canoa, raw: Broker) -> None:
    started: list[int] = []
    is_over = asyncio.Event()

    @app.action
    async def held(number: int) -> int:
        started.append(number)
        await is_over.wait()
        return number

    worker = Worker(app, WorkerSettings(concurrency=1))
    await worker.start()
    handles = await held.submit_many(range(3))
    await until(lambda: len(started) == 1)
    stopping = asyncio.ensure_future(worker.stop())
    await asyncio.sleep(0)  # it has begun to leave, and the broker does not know yet
    is_over.set()

    assert await stopping is True
    assert started == [0]
    assert await handles[0].result(10) == 0
    assert all(is_untouched(delivery) for delivery in await taken(raw, QUEUE, 2))


async def test_what_was_handed_back_runs_at_the_next_worker(app: Canoa) -> None:
    gate = Gate()

    @app.action
    async def held(number: int) -> int:
        await gate.hold()
        return number

    async with app.worker(concurrency=1):
        handles = await held.submit_many(range(5))
        await gate.has(1)
        gate.open()

    async with app.worker(concurrency=1):
        assert [await handle.result(10) for handle in handles] == list(range(5))


@pytest.mark.parametrize("is_thread", [False, True])
async def test_what_runs_too_long_is_interrupted_and_handed_back_uncounted(
    app: Canoa, raw: Broker, is_thread: bool
) -> None:
    gate = Gate()

    if is_thread:
        app.action(name="held")(lambda: gate.hold_thread())
    else:
        app.action(name="held")(gate.hold)
    held = app.find("held")
    worker = Worker(app, WorkerSettings(drain_s=0.05))
    await worker.start()
    handle = await held.submit()
    await gate.has(1)

    assert await worker.stop() is False

    assert not handle.is_done
    (delivery,) = await taken(raw, QUEUE, 1)
    assert is_untouched(delivery)
    gate.open()
    await until(lambda: gate.ended == 1)


async def test_a_drain_is_clean_when_nothing_had_to_be_interrupted_and_comes_once(memory_app: Canoa) -> None:
    memory_app.action(name="quick")(lambda: None)
    worker = Worker(memory_app, WorkerSettings())
    await worker.start()

    assert await worker.stop() is True
    assert await worker.stop() is True


async def test_stopping_takes_no_longer_than_it_may_though_an_action_refuses_to_end(
    app: Canoa, raw: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canoa.worker.lane.STOP_WITHIN_S", 0.05)
    monkeypatch.setattr("canoa.worker.worker.INTERRUPT_WITHIN_S", 0.05)
    gives_in = asyncio.Event()

    @app.action
    async def held() -> None:
        while not gives_in.is_set():
            try:
                await gives_in.wait()
            except asyncio.CancelledError:
                continue

    worker = Worker(app, WorkerSettings(drain_s=0.05))
    await worker.start()
    await held.using(result="none").submit()
    await until(lambda: worker.in_progress == 1)

    began_s = time.monotonic()
    assert await worker.stop() is False
    assert time.monotonic() - began_s < 5

    await until_holding(raw, QUEUE, 1)
    gives_in.set()


async def test_nothing_of_a_stopped_worker_is_left(app: Canoa, raw: Broker) -> None:
    gate = Gate()
    app.action(name="held")(gate.hold)
    gate.open()
    before = len(asyncio.all_tasks())

    async with app.worker() as worker:
        await app.find("held").call()

    await app.aclose()
    await until(lambda: len(asyncio.all_tasks()) == before)
    assert (await raw.depth(QUEUE)).consumers == 0
    with pytest.raises(WrongUse, match="does not exist"):
        await raw.depth(topology.cancel_queue(worker.node_id)[0].name)


async def test_a_handle_outlives_the_worker_but_not_the_app(app: Canoa) -> None:
    app.action(name="held")(lambda: None)
    async with app.worker():
        pass
    handle = await app.find("held").submit()

    await app.aclose()

    with pytest.raises(DeliveryUnknown):
        await handle.result()


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"concurrency": -1}, {"processes": -1}, {"drain_s": -0.1}])
def test_a_worker_that_cannot_work_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="use at least 1 attempt at once, and no negative numbers"):
        WorkerSettings(**settings)  # type: ignore[arg-type]


async def test_an_app_without_actions_has_no_worker(memory_app: Canoa) -> None:
    with pytest.raises(WrongUse, match=r"app 'shop' has no actions; define one with @"):
        async with memory_app.worker():
            pass
