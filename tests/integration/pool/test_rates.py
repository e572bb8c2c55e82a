"""Starts keep to their rate over all workers, or of each; what must wait is held, handed back, never lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import sample, until

from canoa import Canoa, Context, Rate, SettingError, TaskExpired
from canoa.broker import topology
from canoa.errors import StoreUnreachable
from canoa.worker.limiter import LocalLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.broker.port import Broker


@pytest.fixture
async def app(app_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Canoa]:
    """Where the broker is a real one, its workers share a store."""
    if app_broker != "memory://":
        monkeypatch.setenv("CANOA_STORE", f"sqlite:///{tmp_path / 'canoa.db'}")
    app = Canoa("shop", broker=app_broker)
    yield app
    async with asyncio.timeout(15):
        await app.aclose()


async def test_two_workers_together_keep_to_the_rate(app: Canoa) -> None:
    """Within a tenth, over six seconds."""
    began_s: list[float] = []

    @app.action(rate="50/s")
    async def note(number: int) -> None:
        began_s.append(time.time())

    async with app.worker() as one, app.worker() as other:
        for handle in await note.submit_many(range(301)):
            await handle.result(30)

        ran = [
            sample(worker, "canoa_actions_total", action="shop.note", layer="CLOUD", outcome="ok")
            for worker in (one, other)
        ]

    assert 300 / (began_s[-1] - began_s[0]) == pytest.approx(50, rel=0.1)
    assert min(ran) > 50


async def test_after_a_pause_a_burst_starts_at_once_and_no_more(app: Canoa) -> None:
    began_s: list[float] = []

    @app.action(rate=Rate("5/s", burst=10))
    async def note(number: int) -> None:
        began_s.append(time.time())

    async with app.worker():
        for handle in await note.submit_many(range(13)):
            await handle.result(30)

    first_s = began_s[0]
    assert began_s[9] - first_s < 0.2
    assert began_s[12] - first_s >= 0.55  # three more, a fifth of a second apart


async def test_a_limit_of_each_worker_needs_no_store(app_broker: str) -> None:
    app = Canoa("shop", broker=app_broker)
    began_s: list[float] = []

    @app.action(rate=Rate("20/s", scope="worker"))
    async def note(number: int) -> None:
        began_s.append(time.time())

    async with app, app.worker(), app.worker():
        for handle in await note.submit_many(range(81)):
            await handle.result(30)

    assert 80 / (began_s[-1] - began_s[0]) == pytest.approx(40, rel=0.25)  # the last ones may be in one worker's hands


@pytest.mark.parametrize(("rate", "concurrency"), [("10/s", None), (None, "{number}")])
async def test_a_global_limit_without_a_store_is_refused_at_the_start(
    rate: str | None, concurrency: str | None
) -> None:
    app = Canoa("shop", broker="amqp://nowhere.invalid")

    @app.action(rate=rate, concurrency=concurrency)
    async def note(number: int) -> None: ...

    with pytest.raises(
        SettingError, match=r"action 'shop.note' has a limit over all workers.*CANOA_STORE.*scope='worker'"
    ):
        async with app.worker():
            pass


async def test_what_waits_for_its_start_is_handed_back_by_a_worker_that_drains(app: Canoa, raw: Broker) -> None:
    ran: list[int] = []

    @app.action(rate="1/h", max_crashes=1)
    async def note(number: int) -> None:
        ran.append(number)

    async with app.worker(drain_s=5) as worker:
        handles = await note.submit_many(range(5))
        await handles[0].result(10)
        await until(lambda: worker._settler._in_hand > 0)

    assert ran == [0]
    assert (await raw.depth(topology.action_queue_name("shop.note"))).messages == 4


async def test_a_worker_does_not_hoard_what_cannot_start_soon(app: Canoa, raw: Broker) -> None:
    @app.action(rate="1/h")
    async def note(number: int) -> None: ...

    async with app.worker():
        handles = await note.submit_many(range(20))
        await handles[0].result(10)

        left = (await raw.depth(topology.action_queue_name("shop.note"))).messages
    assert left >= 16


async def test_what_was_cancelled_or_expired_while_it_waited_uses_no_start(memory_app: Canoa) -> None:
    @memory_app.action(rate="1/s", timeout=None)
    async def when(number: int) -> float:
        return time.time()

    async with memory_app.worker():
        first_s = await when.call(0)
        expired = await when.using(queue_timeout=0.1).submit(1)
        cancelled = await when.submit(2)
        kept = await when.submit(3)
        await cancelled.cancel()

        assert await kept.result(10) - first_s < 1.5  # the very next start
        with pytest.raises(TaskExpired):
            await expired.result(10)


async def test_retries_wait_for_their_turn_like_everybody(memory_app: Canoa) -> None:
    began_s: list[float] = []

    @memory_app.action(rate="2/s", retry=2)
    async def fails_twice(ctx: Context) -> int:
        began_s.append(time.time())
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    async with memory_app.worker():
        assert await fails_twice.call() == 3

    assert began_s[-1] - began_s[0] >= 0.99


class AwayLimiter(LocalLimiter):
    """A store that cannot be reached for a while."""

    is_away = True

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        if self.is_away:
            raise StoreUnreachable("no link to the store")
        return await super().reserve(key, count=count, per_ms=per_ms, burst=burst, now_ms=now_ms, within_ms=within_ms)


async def test_while_the_store_is_away_nothing_starts_and_afterwards_it_goes_on(memory_app: Canoa) -> None:
    memory_app.limiter = limiter = AwayLimiter()
    ran: list[int] = []

    @memory_app.action(rate="100/s")
    async def note(number: int) -> None:
        ran.append(number)

    async with memory_app.worker() as worker:
        handles = await note.submit_many(range(3))
        await until(lambda: worker._gate._patients["global"]._is_silent)
        assert ran == []

        limiter.is_away = False
        for handle in handles:
            await handle.result(10)
    assert ran == [0, 1, 2]
