"""Questions about kept tasks: each is answered in time, or says whose trouble it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from canoa import CanoaError
from canoa.errors import ActionFailed, StoreUnreachable, UnknownTask

if TYPE_CHECKING:
    from tests.integration.keep.keeping import Keeping

    from canoa.store.port import Store

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


async def _ended_task(keeping: Keeping) -> str:
    @keeping.app.action()
    async def double(number: int) -> int:
        return 2 * number

    await keeping.start()
    handle = await double.using(result="keep").submit(21)
    assert await handle.result(WITHIN_S) == 42
    return handle.id


def _fail_reads(monkeypatch: pytest.MonkeyPatch, store: Store, error: Exception) -> None:
    async def fails(_task_id: Any) -> Any:
        raise error

    monkeypatch.setattr(store, "task", fails)
