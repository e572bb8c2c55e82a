"""Tasks to keep that no message can carry on as they are: they end, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping, heard
from tests.integration.pool.pool import opened

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from pathlib import Path

FRAME_BYTES = 131_072


@pytest.mark.rabbitmq
async def test_a_task_to_keep_whose_headers_fill_the_frame_ends_as_refused(rabbit_url: str, tmp_path: Path) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def buy() -> None: ...

        await keeping.start()
        task_id = new_task_id()
        async with opened(keeping.app) as raw:
            told_to_caller = await heard(raw, "r")
            overhead = 22 + 1 + 1 + len("r") + 1 + len(task_id) + 1 + len("shop.buy") + 4 + 1 + len("note") + 1 + 4
            full = Message(
                body=b"{}",
                message_id=task_id,
                type="shop.buy",
                reply_to="r",
                headers={"note": "x" * (FRAME_BYTES - overhead)},
            )
            await raw.publish(Publication(message=full, key=topology.SUBMIT))

            async with asyncio.timeout(10):
                told = await told_to_caller
        assert told.type == "refused"
        assert (await keeping.desk.task(task_id)).outcome == "refused"
        assert (await keeping.desk.letter(task_id)).action == "shop.buy"
        await _has_settled(keeping, topology.SUBMIT)


@pytest.mark.rabbitmq
async def test_a_caller_whose_queue_no_message_can_name_holds_up_no_result(rabbit_url: str, tmp_path: Path) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action()
        async def buy() -> None: ...

        await keeping.start()
        task_id = new_task_id()
        async with opened(keeping.app) as raw:
            grows = Message(body=b"{}", message_id=task_id, type="shop.buy", reply_to="\0" * 200)
            await raw.publish(Publication(message=grows, key=topology.SUBMIT))

        assert (await keeping.desk.result(task_id, wait_s=10)).task.outcome == "ok"
        await _has_settled(keeping, topology.RESULTS)


async def _has_settled(keeping: Keeping, queue: str) -> None:
    """What a recorder has not acknowledged comes back once its link is gone."""
    recorder = keeping.hosted.recorder
    await recorder.stop()
    await recorder.broker.aclose()
    async with opened(keeping.app) as raw:
        assert (await raw.depth(queue)).messages == 0
