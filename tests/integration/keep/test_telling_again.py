"""Whoever submits a known key hears how its task ended, whatever happens to the task in that moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.keep.keeping import Keeping, heard
from tests.integration.pool.pool import opened

from canoa import ActionFailed
from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.errors import StoreUnreachable
from canoa.store.port import End

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.store.port import Answer, Change, Store
    from canoa.vocabulary import TaskId

WITHIN_S = 10.0


async def test_who_submits_a_key_while_its_task_is_redriven_hears_of_the_new_run(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_mended = False
    may_end = asyncio.Event()

    @keeping.app.action()
    async def pay() -> str:
        if not is_mended:
            raise OSError
        await may_end.wait()
        return "paid"

    await keeping.start()
    once = pay.using(result="keep", idempotency_key="order-7")
    with pytest.raises(ActionFailed):
        await (await once.submit()).result(WITHIN_S)
    is_mended = True
    await keeping.app.aclose()  # its first caller is gone
    redriven = _redrive_before_the_first_question(monkeypatch, keeping)

    late = await once.submit()
    async with asyncio.timeout(WITHIN_S):
        await redriven.wait()
    may_end.set()

    assert await late.result(WITHIN_S) == "paid"


def _redrive_before_the_first_question(monkeypatch: pytest.MonkeyPatch, keeping: Keeping) -> asyncio.Event:
    redriven = asyncio.Event()
    store = keeping.hosted.recorder.store
    result = store.result

    async def asked(task_id: TaskId) -> Message | None:
        if not redriven.is_set():
            await keeping.desk.redrive([task_id])
            redriven.set()
        return await result(task_id)

    monkeypatch.setattr(store, "result", asked)
    return redriven


async def test_a_caller_hears_of_a_refusal_also_when_the_answer_to_its_commit_was_lost(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    @keeping.app.action()
    async def buy() -> None: ...

    await keeping.start()
    lost = _lose_the_first_answer_to_an_end(monkeypatch, keeping.hosted.recorder.store)
    async with opened(keeping.app) as raw:
        told = await heard(raw, "caller")
        absent = Message(body=b"{}", message_id="a", type="shop.absent", reply_to="caller")

        await raw.publish(Publication(message=absent, key=topology.SUBMIT))

        async with asyncio.timeout(WITHIN_S):
            assert (await told).type == "refused"
        assert lost


def _lose_the_first_answer_to_an_end(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[int]:
    lost: list[int] = []
    apply = store.apply

    async def applied(changes: Sequence[Change]) -> list[Answer]:
        answers = await apply(changes)
        if not lost and any(isinstance(change, End) for change in changes):
            lost.append(len(changes))
            raise StoreUnreachable("the link broke before the answer came")
        return answers

    monkeypatch.setattr(store, "apply", applied)
    return lost
