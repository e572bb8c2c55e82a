"""Answers travel by any way that is open, the preferred one first; what may still arrive is never given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from canoa.broker.memory import MemoryBroker
from canoa.broker.port import Message
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable, WrongUse
from canoa.worker.answer_way import AnyWay, BrokerWay

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import PublishOutcome
    from canoa.worker.answer_way import AnswerWay

ANSWER = Message(body=b"42", message_id="task.0.1.1")
AWAY, UNKNOWN = BrokerUnreachable("no link"), DeliveryUnknown("the link broke")
NOBODY, NEVER = Unroutable("nobody listens"), WrongUse("it cannot be carried")


class PaperWay:
    def __init__(self, says: PublishOutcome = None, *, is_open: bool = True) -> None:
        self.says = says
        self.is_open = is_open
        self.tries = 0

    def send(self, message: Message, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self.tries += 1
        asyncio.get_running_loop().call_soon(on_outcome, self.says)


async def outcome_of(*ways: PaperWay) -> PublishOutcome:
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    AnyWay(ways).send(ANSWER, told.set_result)
    return await asyncio.wait_for(told, 5)


@pytest.mark.parametrize("trouble", [AWAY, UNKNOWN, NOBODY, NEVER])
async def test_what_one_way_does_not_take_goes_by_the_next(trouble: PublishOutcome) -> None:
    ways = PaperWay(trouble), PaperWay(), PaperWay()

    assert await outcome_of(*ways) is None
    assert [way.tries for way in ways] == [1, 1, 0]


async def test_a_way_that_is_closed_is_not_tried_while_another_is_open() -> None:
    ways = PaperWay(is_open=False), PaperWay(is_open=False), PaperWay()

    assert await outcome_of(*ways) is None
    assert [way.tries for way in ways] == [0, 0, 1]


async def test_where_all_are_closed_the_last_one_is_tried_alone() -> None:
    ways = PaperWay(is_open=False), PaperWay(AWAY, is_open=False)

    assert await outcome_of(*ways) is AWAY
    assert [way.tries for way in ways] == [0, 1]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([AWAY, NOBODY], AWAY),
        ([NOBODY, AWAY], AWAY),
        ([UNKNOWN, NEVER], UNKNOWN),
        ([NOBODY, NOBODY], NOBODY),
        ([NEVER, NOBODY, UNKNOWN], UNKNOWN),
    ],
)
async def test_of_several_troubles_one_that_may_pass_is_told(said: list[PublishOutcome], told: PublishOutcome) -> None:
    assert await outcome_of(*map(PaperWay, said)) is told


async def test_bundles_are_for_the_broker_while_that_is_open() -> None:
    class Cut(BrokerWay):
        is_open = False

    broker = MemoryBroker()

    assert AnyWay([Cut(broker)]).is_the_broker  # what else
    assert not AnyWay([Cut(broker), PaperWay()]).is_the_broker
    assert not AnyWay([PaperWay()]).is_the_broker


_port: Callable[[], AnswerWay] = PaperWay
