"""Tasks with one key run one at a time, or as many as allowed, over all workers; keys do not wait for each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import Gate, until
from tests.integration.pool.test_rates import app

from canoa import ActionFailed, ActionTimedOut, Canoa, Concurrency, TaskRefused
from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.clock import now_ms
from canoa.worker import gate as gate_module
from canoa.worker import slots as slots_module

if TYPE_CHECKING:
    from canoa.broker.port import Broker

__all__ = ["app"]


class Watch:
    """How many run at once, by key and altogether."""

    def __init__(self) -> None:
        self.running: Counter[int] = Counter()
        self.most_by_key: Counter[int] = Counter()
        self.most = 0

    async def during(self, key: int, seconds: float) -> None:
        self.running[key] += 1
        self.most_by_key[key] = max(self.most_by_key[key], self.running[key])
        self.most = max(self.most, self.running.total())
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running[key] -= 1


@pytest.mark.parametrize("limit", [1, 3])
async def test_as_many_run_at_once_as_a_key_allows_and_keys_run_side_by_side(app: Canoa, limit: int) -> None:
    watch = Watch()

    @app.action(concurrency=Concurrency("customer:{customer}", limit=limit))
    async def charge(customer: int, amount: int = 1) -> int:
        await watch.during(customer, 0.01)
        return customer

    async with app.worker(), app.worker():
        handles = await charge.submit_many([n % 4 for n in range(80)])
        results = [await handle.result(60) for handle in handles]

    assert results == [n % 4 for n in range(80)]
    assert max(watch.most_by_key.values()) == limit
    assert watch.most > limit


async def test_tasks_of_one_key_run_in_order_in_one_worker(app: Canoa) -> None:
    order: list[int] = []

    @app.action(concurrency="all")
    async def note(number: int) -> None:
        await asyncio.sleep(0.001)
        order.append(number)

    async with app.worker():
        for handle in await note.submit_many(range(30)):
            await handle.result(10)

    assert order == list(range(30))


async def test_actions_with_the_same_key_exclude_each_other(memory_app: Canoa) -> None:
    watch = Watch()

    @memory_app.action(concurrency="customer:{id}")
    async def charge(id: int) -> None:
        await watch.during(id, 0.01)

    @memory_app.action(concurrency="customer:{customer}")
    async def refund(customer: int) -> None:
        await watch.during(customer, 0.01)

    async with memory_app.worker():
        await asyncio.gather(*(action.call(1) for action in (charge, refund) for _ in range(5)))

    assert watch.most_by_key == {1: 1}


async def test_a_place_is_free_again_however_the_task_ended(memory_app: Canoa) -> None:
    gate = Gate()

    @memory_app.action(concurrency="all", timeout=0.05)
    async def ends(how: str) -> str:
        if how == "fails":
            raise ValueError
        if how == "hangs":
            await asyncio.sleep(5)
        if how == "held":
            await gate.hold()
        return how

    async with asyncio.timeout(10), memory_app.worker():
        with pytest.raises(ActionFailed):
            await ends.call("fails")
        with pytest.raises(ActionTimedOut):
            await ends.call("hangs")
        handle = await ends.using(timeout=10).submit("held")
        await gate.has(1)
        await handle.cancel()
        assert await ends.call("fine") == "fine"


async def test_the_places_of_a_worker_that_died_are_free_once_they_expire(memory_app: Canoa) -> None:
    ran_ms: list[int] = []

    @memory_app.action(concurrency="customer:{id}")
    async def charge(id: int) -> None:
        ran_ms.append(now_ms())

    until_ms = now_ms() + 700
    assert await memory_app.limiter.take_slot(
        "slot:shop:customer:1", "of a dead worker", limit=1, now_ms=until_ms - 700, for_ms=700
    )
    async with memory_app.worker():
        await charge.call(1)

    assert until_ms <= ran_ms[0] <= until_ms + 1500


async def test_a_place_is_kept_for_longer_than_its_time_while_the_task_runs(
    app: Canoa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots_module, "HELD_MS", 500)
    monkeypatch.setattr(slots_module, "RENEW_EVERY_S", 0.15)
    watch = Watch()

    @app.action(concurrency="all")
    async def slow() -> None:
        await watch.during(0, 1.2)

    async with app.worker(), app.worker():
        await asyncio.gather(slow.call(), slow.call())

    assert watch.most == 1


async def test_what_waits_for_too_long_goes_to_the_broker_and_comes_back_uncounted(
    app: Canoa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "HOLD_S", 0.1)
    gate, attempts = Gate(), []

    @app.action(concurrency="all", max_crashes=1, timeout=None)
    async def held(is_first: bool) -> None:
        if is_first:
            await gate.hold()
        else:
            attempts.append(1)

    async with app.worker() as worker:
        first = await held.submit(True)
        await gate.has(1)
        second = await held.submit(False)
        await until(lambda: worker._settler._in_hand == 2)
        await until(lambda: worker._settler._in_hand == 1)  # gone to a rung
        gate.open()

        await first.result(10)
        await second.result(10)
    assert attempts == [1]


async def test_arguments_that_give_no_key_are_refused(memory_app: Canoa, memory_raw: Broker) -> None:
    @memory_app.action(concurrency="customer:{id}")
    async def charge(id: int) -> int:
        return id

    async with memory_app.worker():
        handle = await memory_app.submit_raw("shop.charge", b'{"id":"seven"}')
        with pytest.raises(TaskRefused, match=r"Expected `int`"):
            await handle.result(10)
        assert await charge.call(7) == 7


async def test_a_suspect_waits_for_its_place_too(app: Canoa, raw: Broker) -> None:
    gate, watch = Gate(), Watch()

    @app.action(concurrency="all", timeout=None)
    async def held() -> None:
        await gate.hold()
        await watch.during(0, 0)

    async with app.worker() as worker:
        first = await held.submit()
        await gate.has(1)
        suspect = Message(body=b"{}", content_type="application/json", message_id="suspect", type="shop.held")
        await raw.publish(Publication(message=suspect, key=topology.suspect_queue_name("shop.held")))
        await until(lambda: worker._suspects.is_running)
        assert gate.came == 1

        gate.open()
        await first.result(10)
        await until(lambda: watch.most_by_key[0] == 1 and gate.came == 2)
    assert watch.most == 1


async def test_a_rate_and_a_key_hold_together(memory_app: Canoa) -> None:
    watch = Watch()

    @memory_app.action(rate="50/s", concurrency="customer:{id}")
    async def charge(id: int) -> None:
        await watch.during(id, 0.03)

    loop = asyncio.get_running_loop()
    async with memory_app.worker():
        began_s = loop.time()
        await asyncio.gather(*(charge.call(number % 5) for number in range(50)))
        took_s = loop.time() - began_s

    assert set(watch.most_by_key.values()) == {1}
    assert took_s >= 49 / 50
