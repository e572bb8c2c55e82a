"""A group that the store does not take: whose trouble it is, and whose it is not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable, WrongUse
from canoa.store.grouping import TRIES, GroupWriter
from canoa.store.port import Sent

if TYPE_CHECKING:
    from collections.abc import Sequence

BAD = 7
WITHIN_S = 5.0


class FussyStore:
    """Refuses every group that has the bad change in it."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_fussy = True
        self.groups: list[int] = []

    async def apply(self, changes: Sequence[Sent]) -> list[Any]:
        self.groups.append(len(changes))
        if self.is_fussy and any(change.seq == BAD for change in changes):
            raise self.error
        return [None] * len(changes)


async def answers_of(store: Any) -> list[Any]:
    """To twenty changes of one group, in their order."""
    writer, heard = GroupWriter(store), list[Any]()
    for seq in range(20):
        writer.post(Sent(seq=seq), heard.append)
    async with asyncio.timeout(WITHIN_S):
        await writer.aclose()
    return heard


@pytest.mark.parametrize("error", [WrongUse("a value that cannot be kept"), CanoaError("refused"), KeyError("a bug")])
async def test_a_change_that_the_store_refuses_is_refused_alone(error: Exception) -> None:
    answers = await answers_of(FussyStore(error))

    assert [seq for seq, answer in enumerate(answers) if answer is not None] == [BAD]
    assert isinstance(answers[BAD], CanoaError)


async def test_a_change_over_which_the_store_fails_time_and_again_is_refused_for_good() -> None:
    store: Any = FussyStore(KeyError("a bug"))

    answers = await tried(GroupWriter(store), times=TRIES)

    assert [type(each) for each in answers] == [StoreUnreachable] * (TRIES - 1) + [WrongUse]
    assert f"Sent {BAD}" in str(answers[-1])


async def test_failures_before_it_was_written_do_not_count() -> None:
    store: Any = FussyStore(KeyError("a bug"))
    writer = GroupWriter(store)
    await tried(writer, times=TRIES - 1)
    store.is_fussy = False
    assert await tried(writer, times=1) == [None]

    store.is_fussy = True

    assert not any(isinstance(each, WrongUse) for each in await tried(writer, times=TRIES - 1))


async def tried(writer: GroupWriter, *, times: int) -> list[Any]:
    """What it answers to the bad change, each time anew."""
    heard = list[Any]()
    for _ in range(times):
        writer.post(Sent(seq=BAD), heard.append)
        async with asyncio.timeout(WITHIN_S):
            await writer.aclose()
    return heard


@pytest.mark.parametrize("error", [StoreUnreachable("away"), StoreFull("no room"), SettingError("read only")])
async def test_when_the_store_itself_is_in_trouble_the_group_is_tried_once(error: CanoaError) -> None:
    store = FussyStore(error)

    assert await answers_of(store) == [error] * 20
    assert store.groups == [20]


async def test_who_fails_to_hear_an_answer_keeps_nobody_from_hearing_his() -> None:
    store: Any = FussyStore(KeyError())
    writer, heard = GroupWriter(store), list[Any]()

    writer.post(Sent(seq=1), _fail)
    writer.post(Sent(seq=2), heard.append)
    async with asyncio.timeout(WITHIN_S):
        await writer.apply(Sent(seq=3))
        await writer.apply(Sent(seq=4))

    assert heard == [None]


def _fail(_: object) -> None:
    raise ValueError("cannot hear")
