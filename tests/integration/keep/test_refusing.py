"""What a recorder cannot read: nobody waits for it in vain, and nothing of it is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.keep.keeping import Keeping, eventually, heard
from tests.integration.pool.pool import opened

from canoa import TaskRefused
from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.vocabulary import ActionName
from canoa.wire import task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.recorder.views import LetterView

WITHIN_S = 10.0


@pytest.fixture
async def shop(keeping: Keeping) -> AsyncIterator[Keeping]:
    may_end = asyncio.Event()

    @keeping.app.action()
    async def buy() -> str:
        return "sold"

    @keeping.app.action()
    async def hangs() -> None:
        await may_end.wait()

    await keeping.start()
    yield keeping
    may_end.set()


async def sent(shop: Keeping, queue: str, **properties: Any) -> None:
    async with opened(shop.app) as raw:
        message = Message(**{"body": b"{}", **properties})
        await raw.publish(Publication(message=message, key=queue, mandatory=False))


async def one_letter(shop: Keeping) -> LetterView:
    async def is_there() -> bool:
        return len((await shop.desk.dead()).letters) == 1

    await eventually(is_there)
    letter: LetterView = (await shop.desk.dead()).letters[0]
    return letter


async def test_who_submits_what_cannot_be_read_hears_so_and_finds_it_among_the_dead_letters(shop: Keeping) -> None:
    async with opened(shop.app) as raw:
        told = await heard(raw, "caller")
        strange = {task.SENT: "yesterday"}
        await sent(shop, topology.SUBMIT, message_id="a", type="shop.buy", reply_to="caller", headers=strange)

        async with asyncio.timeout(WITHIN_S):
            assert (await told).type == "refused"
    assert (await shop.desk.task("a")).outcome == "refused"
    letter = await one_letter(shop)
    assert (letter.task_id, letter.origin) == ("a", topology.SUBMIT)
    assert "canoa-sent is 'yesterday'" in letter.error


@pytest.mark.parametrize("queue", [topology.SUBMIT, topology.RESULTS])
async def test_what_names_no_task_is_kept_as_a_dead_letter(shop: Keeping, queue: str) -> None:
    await sent(shop, queue, body=b"garbage")

    letter = await one_letter(shop)

    assert (letter.origin, letter.reason) == (queue, "refused")


async def test_a_dead_letter_that_is_still_unreadable_when_it_is_redriven_dies_again(shop: Keeping) -> None:
    await sent(shop, topology.SUBMIT, message_id="a", type="nonsense")
    await one_letter(shop)

    assert (await shop.desk.redrive(["a"])).redriven == ["a"]

    ended = (await shop.desk.result("a", wait_s=WITHIN_S)).task
    assert (ended.state, ended.outcome, ended.run) == ("ended", "refused", 1)
    await one_letter(shop)


async def test_an_unreadable_answer_ends_the_task_it_names(shop: Keeping) -> None:
    handle = await shop.app.actions[ActionName("shop.hangs")].using(result="keep").submit()
    await eventually(lambda: _is_known(shop, handle.id))

    await sent(shop, topology.RESULTS, correlation_id=handle.id, type="exploded")

    with pytest.raises(TaskRefused, match="'exploded' says nothing about how its task ended"):
        await handle.result(WITHIN_S)
    assert (await one_letter(shop)).task_id == handle.id


async def test_an_unreadable_submit_under_a_known_id_does_not_end_that_task(shop: Keeping) -> None:
    handle = await shop.app.actions[ActionName("shop.hangs")].using(result="keep").submit()
    await eventually(lambda: _is_known(shop, handle.id))
    async with opened(shop.app) as raw:
        told = await heard(raw, "caller")

        await sent(shop, topology.SUBMIT, message_id=handle.id, type="nonsense", reply_to="caller")

        async with asyncio.timeout(WITHIN_S):
            assert (await told).type == "refused"
    assert (await shop.desk.task(handle.id)).state != "ended"


async def _is_known(shop: Keeping, task_id: str) -> bool:
    return task_id in [each.id for each in (await shop.desk.tasks()).tasks]
