"""What becomes of tasks that ended badly: each waits once, says why, and is sent again once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.contract.store.words import bury
from tests.integration.keep.keeping import Keeping, eventually

from canoa import ActionFailed, TaskPoisoned
from canoa.store.port import Redrive

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from canoa.store.port import Answer, Change

WITHIN_S = 10.0


async def test_a_kept_task_that_failed_is_redriven_once_and_then_has_one_result(keeping: Keeping) -> None:
    is_mended = False
    runs = 0

    @keeping.app.action()
    async def breaks() -> str:
        nonlocal runs
        runs += 1
        if not is_mended:
            raise OSError("shelf is locked")
        return "sold"

    await keeping.start()
    handle = await breaks.using(result="keep").submit()
    with pytest.raises(ActionFailed):
        await handle.result(WITHIN_S)
    [letter] = (await keeping.desk.dead()).letters
    assert (letter.task_id, letter.action, letter.reason) == (handle.id, "shop.breaks", "failed")
    assert letter.error == "OSError: shelf is locked"
    assert "in breaks" in letter.traceback
    assert letter.origin == "canoa.action.shop.breaks"

    is_mended = True
    first = await keeping.desk.redrive([handle.id])
    second = await keeping.desk.redrive([handle.id])

    assert (first.redriven, second.skipped) == ([handle.id], [handle.id])
    assert await keeping.app.handle(handle.id).result(WITHIN_S) == "sold"
    assert runs == 2
    assert (await keeping.desk.dead()).letters == []
    assert (await keeping.desk.task(handle.id)).run == 1


async def test_a_redriven_task_may_die_and_be_redriven_again(keeping: Keeping) -> None:
    @keeping.app.action()
    async def breaks() -> None:
        raise OSError("still locked")

    await keeping.start()
    handle = await breaks.using(result="keep").submit()
    with pytest.raises(ActionFailed):
        await handle.result(WITHIN_S)

    for run in (1, 2):
        assert (await keeping.desk.redrive_all()).redriven == [handle.id]
        with pytest.raises(ActionFailed):
            await keeping.app.handle(handle.id).result(WITHIN_S)
        assert (await keeping.desk.task(handle.id)).run == run


async def test_a_failure_nobody_waits_for_becomes_a_dead_letter_and_its_redrive_is_kept(keeping: Keeping) -> None:
    is_mended = False

    @keeping.app.action()
    async def breaks(shelf: int) -> int:
        if not is_mended:
            raise OSError("shelf is locked")
        return shelf

    await keeping.start()
    raw = breaks.using(result="none")
    handle = await raw.submit(7)
    await eventually(lambda: _letters(keeping, 1))
    [letter] = (await keeping.desk.dead(action="shop.breaks")).letters
    assert letter.task_id == handle.id
    assert "in breaks" in letter.traceback

    is_mended = True
    await keeping.desk.redrive_all(action="shop.breaks")

    assert await keeping.app.handle(handle.id).result(WITHIN_S) == 7


async def _letters(keeping: Keeping, count: int) -> bool:
    return len((await keeping.desk.dead()).letters) == count


@pytest.mark.rabbitmq
async def test_two_recorders_asked_at_once_redrive_a_letter_once(rabbit_url: str, tmp_path: Path) -> None:
    async with Keeping(rabbit_url, tmp_path) as keeping:
        runs: list[int] = []
        is_mended = False

        @keeping.app.action()
        async def breaks(number: int) -> None:
            runs.append(number)
            if not is_mended:
                raise OSError

        await keeping.start()
        other = (await keeping.another_recorder()).desk
        handles = await breaks.using(result="keep").submit_many(range(20))
        for handle in handles:
            with pytest.raises(ActionFailed):
                await handle.result(WITHIN_S)
        ids = [handle.id for handle in handles]
        runs.clear()
        is_mended = True

        done = await asyncio.gather(keeping.desk.redrive(ids), other.redrive(ids))

        assert sorted(done[0].redriven + done[1].redriven) == sorted(ids)
        for task_id in ids:
            await keeping.app.handle(task_id).result(WITHIN_S)
        assert sorted(runs) == list(range(20))


async def test_a_redriven_task_that_ended_its_process_too_often_is_put_aside(memory_keeping: Keeping) -> None:
    is_mended = False
    may_end = asyncio.Event()

    @memory_keeping.app.action()
    async def breaks() -> None:
        if not is_mended:
            raise OSError("shelf is locked")
        await may_end.wait()

    await memory_keeping.start()
    acceptor = memory_keeping.hosted.recorder.acceptor
    await acceptor.publish_unfinished({}, {})  # the start at which the task was not there yet
    handle = await breaks.using(result="keep").submit()
    with pytest.raises(ActionFailed):
        await handle.result(WITHIN_S)
    is_mended = True
    await memory_keeping.desk.redrive([handle.id])

    await acceptor.publish_unfinished({handle.id: breaks.policy.max_crashes}, {breaks.name: breaks.policy})

    with pytest.raises(TaskPoisoned):
        await memory_keeping.app.handle(handle.id).result(WITHIN_S)
    may_end.set()


async def test_many_letters_are_redriven_in_a_few_transactions(memory_keeping: Keeping) -> None:
    """One transaction each would take the time of a file sync each: thousands would exceed every time limit."""

    @memory_keeping.app.action()
    async def resize(width: int) -> None: ...

    await memory_keeping.start()
    recorder = memory_keeping.hosted.recorder
    await recorder.store.apply([bury(f"{number}") for number in range(1200)])
    batches = counting_batches(recorder.store)

    done = await memory_keeping.desk.redrive_all()
    again = await memory_keeping.desk.redrive(done.redriven)

    assert sorted(done.redriven) == sorted(f"{number}" for number in range(1200))
    assert (done.skipped, again.redriven, len(again.skipped)) == ([], [], 1200)
    of_redrives = [batch for batch in batches if any(isinstance(change, Redrive) for change in batch)]
    assert len(of_redrives) < 30  # six, and a few more where ends of the redriven ones come in between


def counting_batches(store: Any) -> list[list[Change]]:
    """Of the store itself: what its `apply` is given from now on."""
    batches: list[list[Change]] = []
    apply = store.apply

    async def counted(changes: Sequence[Change]) -> list[Answer]:
        batches.append(list(changes))
        return cast("list[Answer]", await apply(changes))

    store.apply = counted
    return batches
