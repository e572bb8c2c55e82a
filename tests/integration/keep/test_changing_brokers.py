"""A store outlives its broker: what was accepted on a memory broker runs on the real one that follows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping

from canoa import Canoa
from canoa.errors import StoreTaken
from canoa.recorder.hosting import hosting

if TYPE_CHECKING:
    from pathlib import Path

WITHIN_S = 20.0


@pytest.mark.rabbitmq
async def test_what_waits_on_a_memory_broker_runs_on_the_real_one_that_follows_it(
    rabbit_url: str, tmp_path: Path
) -> None:
    shop = Canoa("shop", broker="memory://")
    has_started, never = asyncio.Event(), asyncio.Event()

    @shop.action(name="sell")
    async def begins_to_sell(number: int) -> None:
        has_started.set()
        await never.wait()

    async with asyncio.timeout(WITHIN_S), hosting(shop, f"sqlite:///{tmp_path}/canoa.db"):
        async with shop.worker(drain_s=0):
            kept = await begins_to_sell.using(result="keep").submit_many(range(3))
            await has_started.wait()
        await shop.aclose()

    async with Keeping(rabbit_url, tmp_path) as after:

        @after.app.action()
        async def sell(number: int) -> int:
            return number

        await after.start()

        assert [await after.app.handle(handle.id).result(WITHIN_S) for handle in kept] == [0, 1, 2]


async def test_a_second_memory_broker_on_a_store_is_refused(memory_keeping: Keeping, tmp_path: Path) -> None:
    @memory_keeping.app.action()
    async def sell() -> None: ...

    await memory_keeping.start()

    async with Keeping("memory://", tmp_path) as second:
        with pytest.raises(StoreTaken, match="belongs to the memory broker of process"):
            await second.start()
