"""Answers travel by any way that is open, the preferred one first; what may still arrive is never given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox

from canoa.broker import topology
from canoa.broker.memory import MemoryBroker
from canoa.broker.port import Message, Settlement
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable, WrongUse
from canoa.worker.answer_way import AnyWay, BrokerWay, HeardBrokerWay

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


async def test_where_all_are_closed_none_is_tried_and_that_may_pass() -> None:
    ways = PaperWay(is_open=False), PaperWay(is_open=False)  # over MQTT 3.1.1 it would be taken, and lost

    assert isinstance(await outcome_of(*ways), BrokerUnreachable)
    assert [way.tries for way in ways] == [0, 0]


@pytest.mark.parametrize("ways", [(PaperWay(),), (PaperWay(), PaperWay())])
async def test_once_it_is_closed_nothing_is_sent_and_that_is_told(ways: tuple[PaperWay, ...]) -> None:
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    any_way = AnyWay(ways)

    any_way.close()
    any_way.send(ANSWER, told.set_result)

    assert isinstance(await asyncio.wait_for(told, 5), BrokerUnreachable)
    assert [way.tries for way in ways] == [0] * len(ways)


@pytest.mark.parametrize(("is_heard", "others_are_open"), [(True, True), (False, True), (False, False)])
async def test_over_a_broker_where_no_manager_is_heard_answers_go_at_last(
    is_heard: bool, others_are_open: bool
) -> None:
    broker, came = MemoryBroker(), Inbox(Settlement.ACK)
    await broker.open()
    await broker.declare(*topology.shared(), *topology.manager())
    await broker.consume(topology.STEP_RESULTS, came, prefetch=10)
    other, told = PaperWay(is_open=others_are_open), asyncio.get_running_loop().create_future()

    ways = AnyWay([HeardBrokerWay(broker, lambda: is_heard), other, BrokerWay(broker)])
    ways.send(ANSWER, told.set_result)
    assert await asyncio.wait_for(told, 5) is None

    is_over_the_broker = is_heard or not others_are_open
    assert ways.is_the_broker is is_heard
    assert other.tries == (not is_over_the_broker)
    if is_over_the_broker:
        assert (await came.take_one()).message.body == ANSWER.body
    assert len(came.deliveries) == is_over_the_broker
    await broker.aclose()


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


@pytest.mark.parametrize("is_roomy", [True, False])
async def test_a_confirm_is_in_no_hurry_while_the_broker_brings_more_without_it(
    is_roomy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    posted: list[bool] = []
    monkeypatch.setattr(broker, "post", lambda publication, on_outcome, *, later=False: posted.append(later))

    for way in (BrokerWay(broker, lambda: is_roomy), HeardBrokerWay(broker, lambda: True, lambda: is_roomy)):
        way.send(ANSWER, lambda _: None)

    assert posted == [is_roomy, is_roomy]
