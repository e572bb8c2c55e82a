"""Tasks to keep that no message can carry on as they are: they end, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping, eventually, heard
from tests.integration.pool.pool import opened

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.wire import task
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


@pytest.mark.rabbitmq
async def test_a_kept_task_that_a_worker_cannot_send_on_ends_as_refused(rabbit_url: str, tmp_path: Path) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:

        @keeping.app.action(retry=3)
        async def breaks() -> None:
            raise OSError

        await keeping.start()
        task_id = new_task_id()
        async with opened(keeping.app) as raw:
            # The recorder adds where it answers to; there is no room left for the number of an attempt.
            overhead = 22 + 1 + 1 + len(topology.RESULTS) + 1 + len(task_id) + 1 + len("shop.breaks") + 14
            note = "x" * (FRAME_BYTES - overhead)
            full = Message(body=b"{}", message_id=task_id, type="shop.breaks", headers={"note": note})
            await raw.publish(Publication(message=full, key=topology.SUBMIT))

        ended = (await keeping.desk.result(task_id, wait_s=10)).task
        assert (ended.state, ended.outcome) == ("ended", "refused")
        assert "must fit into one frame" in (await keeping.desk.letter(task_id)).error


async def test_a_redriven_letter_that_a_worker_cannot_read_ends_as_refused(keeping: Keeping) -> None:
    @keeping.app.action()
    async def buy() -> None: ...

    await keeping.start()
    queue = topology.action_queue_name("shop.buy")
    async with opened(keeping.app) as raw:
        strange = Message(body=b"{}", message_id="a", headers={task.SENT: "yesterday"})
        await raw.publish(Publication(message=strange, key=queue))
    await eventually(lambda: _is_dead(keeping, "a"))

    await keeping.desk.redrive(["a"])

    ended = (await keeping.desk.result("a", wait_s=10)).task
    assert (ended.state, ended.outcome, ended.run) == ("ended", "refused", 1)
    await eventually(lambda: _is_dead(keeping, "a"))


async def _is_dead(keeping: Keeping, task_id: str) -> bool:
    return [letter.task_id for letter in (await keeping.desk.dead()).letters] == [task_id]


async def _has_settled(keeping: Keeping, queue: str) -> None:
    """What a recorder has not acknowledged comes back once its link is gone."""
    recorder = keeping.hosted.recorder
    await recorder.stop()
    await recorder.broker.aclose()
    async with opened(keeping.app) as raw:
        assert (await raw.depth(queue)).messages == 0
