"""The outbox: what it can never send ends, and is not tried for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import NOW_MS, accept, bury
from tests.integration.keep.keeping import Keeping, eventually
from tests.integration.pool.pool import opened

from canoa import ActionFailed
from canoa.broker import topology
from canoa.store.opening import new_store
from canoa.store.port import Redrive
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.store.port import Change

WITHIN_S = 10.0


@pytest.mark.rabbitmq
async def test_a_redrive_to_a_queue_that_is_gone_ends_and_waits_among_the_dead_letters_again(
    rabbit_url: str, tmp_path: Path
) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def breaks() -> None:
            raise OSError

        await keeping.start()
        handle = await breaks.using(result="keep").submit()
        with pytest.raises(ActionFailed):
            await handle.result(WITHIN_S)
        await _offer_no_more(keeping)

        assert (await keeping.desk.redrive([handle.id])).redriven == [handle.id]

        task = (await keeping.desk.result(handle.id, wait_s=WITHIN_S)).task
        assert (task.state, task.outcome, task.run) == ("ended", "refused", 1)
        [letter] = (await keeping.desk.dead()).letters
        assert "no queue at" in letter.error
        await eventually(lambda: _is_sent(keeping))


async def _offer_no_more(keeping: Keeping) -> None:
    """The worker is gone, and somebody has removed the action's queue."""
    await keeping.stop_worker()
    async with opened(keeping.app) as raw:
        await raw.delete_queue(topology.action_queue_name("shop.breaks"))


@pytest.mark.rabbitmq
async def test_what_no_message_can_carry_stops_neither_the_outbox_nor_the_recorder(
    rabbit_url: str, tmp_path: Path
) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def resize(width: int) -> int:
            return width

        unsendable = bury("a", headers={"note": "x" * 200_000})
        good = accept("b", outbox=True, reply_to=None, type="shop.resize")
        await _left_behind(keeping, unsendable, Redrive(task_id=TaskId("a"), now_ms=NOW_MS + 1), good)

        await keeping.start()

        refused = (await keeping.desk.result("a", wait_s=WITHIN_S)).task
        assert (refused.outcome, refused.run) == ("refused", 1)
        await eventually(lambda: _is_sent(keeping))
        assert keeping.hosted.recorder.stats.recorded >= 1


async def _left_behind(keeping: Keeping, *changes: Change) -> None:
    """What a recorder wrote before it was killed."""
    store = new_store(keeping.store_url)
    await store.open()
    await store.apply(changes)
    await store.aclose()


async def _is_sent(keeping: Keeping) -> bool:
    far_ms = 4 * NOW_MS
    return not await keeping.hosted.recorder.store.take_outbox(now_ms=far_ms, limit=10, for_ms=1)
