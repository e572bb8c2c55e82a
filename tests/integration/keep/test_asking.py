"""Questions about kept tasks: each is answered in time, or says whose trouble it is."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from canoa import CanoaError, ResultNotReady
from canoa.client import asking, kept
from canoa.client.asking import Patience, ask
from canoa.errors import ActionFailed, NobodyAnswers, StoreUnreachable, UnknownTask
from canoa.recorder import system
from canoa.recorder.hosting import hosting

if TYPE_CHECKING:
    from tests.integration.keep.keeping import Keeping

    from canoa.store.port import Store, TaskRow
    from canoa.vocabulary import TaskId

WITHIN_S = 10.0


async def test_trouble_of_the_store_is_not_told_as_a_failure_of_the_action(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await _ended_task(memory_keeping)
    _fail_reads(monkeypatch, memory_keeping.hosted.recorder.store, StoreUnreachable("no link to the store"))

    with pytest.raises(StoreUnreachable, match="no link to the store"):
        await memory_keeping.app.handle(task_id).status()


async def test_a_bug_of_a_recorder_is_not_told_as_a_failure_of_the_action(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await _ended_task(memory_keeping)
    _fail_reads(monkeypatch, memory_keeping.hosted.recorder.store, KeyError("a bug"))

    with pytest.raises(CanoaError, match="a recorder failed to answer") as told:
        await memory_keeping.app.handle(task_id).result(WITHIN_S)
    assert not isinstance(told.value, ActionFailed)


async def test_an_unknown_task_is_named_by_the_error(memory_keeping: Keeping) -> None:
    await _ended_task(memory_keeping)

    with pytest.raises(UnknownTask) as told:
        await memory_keeping.app.handle("nowhere").status()
    assert told.value.task_id == "nowhere"


async def test_a_wait_for_a_result_ends_in_time_where_no_recorder_runs(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "GRACE_S", 0.2)
    await _stopped_recorder(keeping)

    began_s = time.monotonic()
    with pytest.raises(ResultNotReady, match="no recorder told a result of task any"):
        await keeping.app.handle("any").result(0.3)
    assert 0.3 <= time.monotonic() - began_s < 3


async def test_a_wait_without_a_limit_says_that_nobody_answers(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    _be_impatient(monkeypatch)
    await _stopped_recorder(keeping)

    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(
            NobodyAnswers,
            match="no recorder answers: those that ran on this broker have gone; start one: canoa recorder",
        ):
            await keeping.app.handle("any").result()


async def test_what_nobody_answered_is_waited_for_by_nobody(keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    _be_impatient(monkeypatch)
    await _stopped_recorder(keeping)

    for _ in range(3):
        with pytest.raises(NobodyAnswers):
            await keeping.app.handle("any").status()

    assert len((await keeping.app.session()).replies) == 0


async def test_who_waits_for_an_answer_hears_so(memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "TOLD_SILENT_AFTER_S", 0.0)
    task_id = await _ended_task(memory_keeping)
    said: asyncio.Queue[str] = asyncio.Queue()
    look = memory_keeping.desk.task

    async def slow(task_id: str) -> Any:
        await said.put(await said.get())  # no sooner than it was said
        return await look(task_id)

    monkeypatch.setattr(memory_keeping.desk, "task", slow)
    body = msgspec.json.encode({"task_id": task_id})
    await asyncio.wait_for(
        ask(memory_keeping.app, "task", body, patience=Patience(WITHIN_S, said.put_nowait)), WITHIN_S
    )

    assert said.get_nowait() == "waiting for a recorder's answer"


async def test_a_wait_for_a_result_goes_on_over_a_hiccup_of_the_store(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "ASK_AGAIN_S", 0.01)
    task_id = await _ended_task(memory_keeping)
    store = memory_keeping.hosted.recorder.store
    looks = _fail_reads(monkeypatch, store, StoreUnreachable("no link to the store"), times=3)

    assert await memory_keeping.app.handle(task_id).result(WITHIN_S) == 42
    assert looks == [task_id] * 3


async def test_a_wait_for_a_result_says_so_when_the_store_stays_away(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    _be_impatient(monkeypatch)
    task_id = await _ended_task(memory_keeping)
    _fail_reads(monkeypatch, memory_keeping.hosted.recorder.store, StoreUnreachable("no link to the store"))

    with pytest.raises(StoreUnreachable):
        await memory_keeping.app.handle(task_id).result(WITHIN_S)


async def test_who_waits_for_a_task_takes_no_place_from_other_questions(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = asyncio.Event()

    @keeping.app.action()
    async def waits() -> str:
        await may_end.wait()
        return "done"

    await keeping.start()
    handle = keeping.app.handle((await waits.using(result="keep").submit()).id)
    places = system.WAITERS_AT_ONCE
    all_taken = _when_waiting(monkeypatch, keeping.desk, places)
    waiters = [asyncio.ensure_future(handle.result(6 * WITHIN_S)) for _ in range(places + 100)]
    await asyncio.wait_for(all_taken.wait(), 2 * WITHIN_S)

    async with asyncio.timeout(5):  # a waiter holds its place for longer
        assert (await handle.status()).state != "ended"
    may_end.set()
    assert set(await asyncio.gather(*waiters)) == {"done"}


def _when_waiting(monkeypatch: pytest.MonkeyPatch, desk: Any, count: int) -> asyncio.Event:
    """Set once that many questions wait at the desk."""
    reached = asyncio.Event()
    waiting = itertools.count(1)
    look = desk.result

    async def counted(task_id: str, *, wait_s: float) -> Any:
        if next(waiting) == count:
            reached.set()
        return await look(task_id, wait_s=wait_s)

    monkeypatch.setattr(desk, "result", counted)
    return reached


def _be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENT", Patience(0.1))
    monkeypatch.setattr(asking, "ANSWER_WITHIN_S", 0.1)
    monkeypatch.setattr(asking, "GRACE_S", 0.1)
    monkeypatch.setattr(asking, "MAX_WAIT_S", 0.1)
    monkeypatch.setattr(kept, "MAX_WAIT_S", 0.1)
    monkeypatch.setattr(kept, "PATIENCE_S", 0.3)
    monkeypatch.setattr(kept, "ASK_AGAIN_S", 0.01)


async def _stopped_recorder(keeping: Keeping) -> None:
    """It was there, so its queues are."""

    @keeping.app.action()
    async def idle() -> None: ...

    async with hosting(keeping.app, keeping.store_url):
        pass


async def _ended_task(keeping: Keeping) -> str:
    @keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await keeping.start()
    handle = await double.using(result="keep").submit(21)
    assert await handle.result(WITHIN_S) == 42
    return handle.id


def _fail_reads(
    monkeypatch: pytest.MonkeyPatch, store: Store, error: Exception, *, times: int = sys.maxsize
) -> list[TaskId]:
    """What was asked for in vain."""
    failed: list[TaskId] = []
    look = store.task

    async def fails(task_id: TaskId) -> TaskRow | None:
        if len(failed) == times:
            return await look(task_id)
        failed.append(task_id)
        raise error

    monkeypatch.setattr(store, "task", fails)
    return failed
