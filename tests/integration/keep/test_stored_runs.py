"""On a broker that forgets: what is stored runs, whatever becomes of the one who submitted it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa.errors import StoreUnreachable
from canoa.recorder.views import Request, SubmitOptions
from canoa.store.port import Accept

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.integration.keep.keeping import Keeping

    from canoa.store.port import Answer, Change, Store

WITHIN_S = 10.0


@pytest.mark.parametrize("door", ["submit", "submit_many"])
async def test_a_submit_that_is_cancelled_while_it_is_stored_still_runs(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    ran = await _counted(memory_keeping)
    stored, may_answer = asyncio.Event(), asyncio.Event()

    async def between() -> None:
        stored.set()
        await may_answer.wait()

    _behind_the_first_accept(monkeypatch, memory_keeping.hosted.recorder.store, between)
    submitting = asyncio.ensure_future(_submitted(memory_keeping, door))
    await stored.wait()

    submitting.cancel()
    await asyncio.wait([submitting])
    may_answer.set()

    async with asyncio.timeout(WITHIN_S):
        assert await ran.get() == 7


@pytest.mark.parametrize("door", ["submit", "submit_many"])
@pytest.mark.parametrize("is_submitted_again", [True, False])
async def test_when_the_answer_of_the_store_is_lost_what_it_stored_runs_once(
    memory_keeping: Keeping, monkeypatch: pytest.MonkeyPatch, door: str, is_submitted_again: bool
) -> None:
    ran = await _counted(memory_keeping)

    async def lost() -> None:
        raise StoreUnreachable("the link broke before the answer came")

    _behind_the_first_accept(monkeypatch, memory_keeping.hosted.recorder.store, lost)
    with pytest.raises(StoreUnreachable):
        await _submitted(memory_keeping, door)
    if is_submitted_again:
        await _submitted(memory_keeping, door)

    async with asyncio.timeout(WITHIN_S):
        assert await ran.get() == 7
    [task] = (await memory_keeping.desk.tasks()).tasks
    assert (await memory_keeping.desk.result(task.id, wait_s=WITHIN_S)).task.outcome == "ok"
    await memory_keeping.stop_worker()
    assert ran.empty()


async def _counted(keeping: Keeping) -> asyncio.Queue[int]:
    ran: asyncio.Queue[int] = asyncio.Queue()

    @keeping.app.action()
    async def buy(number: int) -> None:
        ran.put_nowait(number)

    await keeping.start()
    return ran


async def _submitted(keeping: Keeping, door: str) -> None:
    request = Request(action="shop.buy", arguments={"number": 7}, options=SubmitOptions(idempotency_key="order-7"))
    await (keeping.desk.submit(request) if door == "submit" else keeping.desk.submit_many([request]))


def _behind_the_first_accept(
    monkeypatch: pytest.MonkeyPatch, store: Store, between: Callable[[], Awaitable[None]]
) -> None:
    is_first = True
    apply = store.apply

    async def applied(changes: Sequence[Change]) -> list[Answer]:
        nonlocal is_first
        answers = await apply(changes)
        if is_first and any(isinstance(change, Accept) for change in changes):
            is_first = False
            await between()
        return answers

    monkeypatch.setattr(store, "apply", applied)
