"""What a restart of the broker may not take away: accepted tasks, and what a caller waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa import Canoa
from canoa.client.broker_life import BrokerLife
from canoa.testing.rabbitmq import RabbitNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.rabbitmq

WITHIN_S = 60.0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RabbitNode]:
    """A broker of the test's own, since it is killed."""
    node = RabbitNode(tmp_path / "node", schedulers=1)
    await asyncio.to_thread(node.start)
    yield node
    await asyncio.to_thread(node.kill)


async def restart_hard(node: RabbitNode) -> None:
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)


async def waiting(app: Canoa, count: int) -> None:
    """Until that many tasks are in the queue. The broker tells nobody, so it is asked."""
    for _ in range(200):
        if (await app.depth("shop.double")).messages >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"fewer than {count} tasks came to wait")


async def test_calls_and_submits_that_wait_in_a_killed_broker_still_end(node: RabbitNode) -> None:
    app = Canoa("shop", broker=node.url())

    @app.action(timeout=None)
    async def double(number: int) -> int:
        return 2 * number

    async with asyncio.timeout(WITHIN_S), app:
        async with app.worker():
            pass  # declares the queue; afterwards nobody takes from it
        calls = [asyncio.ensure_future(double.call(number)) for number in range(20)]
        handles = await double.submit_many(range(20, 40))
        mapped = asyncio.ensure_future(_all(double.map(range(40, 60))))
        await waiting(app, 60)

        await restart_hard(node)

        async with app.worker():
            results = [*await asyncio.gather(*calls), *[await handle.result() for handle in handles], *await mapped]
            assert sorted(results) == [2 * number for number in range(60)]


async def test_calls_whose_worker_runs_them_during_a_restart_still_end(node: RabbitNode) -> None:
    app = Canoa("shop", broker=node.url())
    started, release = asyncio.Event(), asyncio.Event()

    @app.action(timeout=None)
    async def wait() -> str:
        started.set()
        await release.wait()
        return "done"

    async with asyncio.timeout(WITHIN_S), app, app.worker():
        call = asyncio.ensure_future(wait.call())
        handle = await wait.submit()
        await started.wait()

        await restart_hard(node)
        release.set()

        assert await call == "done"
        assert await handle.result() == "done"


async def test_a_cut_link_is_not_taken_for_a_restart(rabbit_url: str) -> None:
    app = Canoa("shop", broker=rabbit_url)
    broker, later = app.new_broker("first"), app.new_broker("later")
    async with asyncio.timeout(WITHIN_S):
        await broker.open()
        await BrokerLife(broker, "one").begin()
        await broker.aclose()

        await later.open()
        assert await BrokerLife(later, "one").goes_on()
        assert not await BrokerLife(later, "another").goes_on()
        await later.aclose()


async def _all(stream: AsyncIterator[int]) -> list[int]:
    return [item async for item in stream]
