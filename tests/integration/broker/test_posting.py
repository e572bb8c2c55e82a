"""One caller's mistake or impatience is no trouble of the others that publish beside him."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import QUICK, WITHIN_S, eventually

from canoa.broker.amqp import link
from canoa.broker.amqp.publisher import FEW
from canoa.errors import Unroutable, WrongUse

if TYPE_CHECKING:
    import pytest
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.port import PublishOutcome
    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import TcpProxy


async def test_a_message_that_cannot_be_sent_does_not_stop_those_behind_it(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy
) -> None:
    outcomes: list[PublishOutcome] = []
    proxy.cut()
    await eventually(lambda: proxy.link_count == 0)

    broker.post(letter("q" * 300, b"its key is too long"), outcomes.append)
    broker.post(letter("q", b"fine"), outcomes.append)
    proxy.restore()

    await eventually(lambda: len(outcomes) == 2)
    assert isinstance(outcomes[0], WrongUse)
    assert outcomes[1] is None
    await eventually(lambda: inbox.bodies == [b"fine"])


async def test_a_callback_that_raises_does_not_keep_others_from_hearing(
    broker: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[PublishOutcome] = []

    def fail(outcome: PublishOutcome) -> None:
        raise RuntimeError("a caller's mistake")

    for on_outcome in (fail, outcomes.append):
        broker.post(letter("q"), on_outcome)
    await eventually(lambda: outcomes == [None])
    proxy.stall()
    for on_outcome in (fail, outcomes.append):
        broker.post(letter("q"), on_outcome)
    await eventually(lambda: len(outcomes) == 2)
    proxy.resume()

    async with asyncio.timeout(WITHIN_S):
        await broker.publish(letter("q"))
    assert caplog.text.count("publish_callback_failed") == 2


async def test_whoever_was_let_into_the_window_and_gave_up_makes_room_for_the_next(
    new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    broker = await new_broker(proxy.via(rabbit_url), msgspec.structs.replace(QUICK, window=2))

    for _ in range(20):
        waiting = [asyncio.create_task(broker.publish(letter("q"))) for _ in range(10)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting[1:7]:
            task.cancel()
        await asyncio.wait(waiting)
        assert done

    async with asyncio.timeout(WITHIN_S):
        assert await broker.publish_many(letters("q", *numbered(50))) == [None] * 50


async def test_what_nobody_waits_for_is_heard_within_a_moment(broker: RabbitBroker) -> None:
    taken: list[PublishOutcome] = []
    returned: list[PublishOutcome] = []

    broker.post(letter("q"), taken.append, later=True)
    broker.post(letter("no such queue"), returned.append, later=True)

    await eventually(lambda: bool(taken and returned))
    assert taken == [None]
    assert isinstance(returned[0], Unroutable)


async def test_whoever_waits_wakes_a_link_that_rests(broker: RabbitBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[PublishOutcome] = []
    monkeypatch.setattr(link, "REST_S", 3600.0)

    broker.post(letter("q"), outcomes.append, later=True)
    await asyncio.sleep(0.2)
    assert outcomes == []
    async with asyncio.timeout(WITHIN_S):
        await broker.publish(letter("q"))
    assert outcomes == [None]

    broker.post(letter("q"), outcomes.append)
    broker.post(letter("q"), outcomes.append, later=True)  # does not put it to rest before the other is heard
    await eventually(lambda: len(outcomes) >= 2)


async def test_a_link_does_not_rest_while_much_is_sent(broker: RabbitBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[PublishOutcome] = []
    monkeypatch.setattr(link, "REST_S", 3600.0)

    for _ in range(FEW):
        broker.post(letter("q"), outcomes.append, later=True)

    await eventually(lambda: outcomes == [None] * FEW)


async def test_a_link_that_rests_is_closed_at_once(
    new_broker: NewBroker, control: RabbitBroker, rabbit_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[PublishOutcome] = []
    monkeypatch.setattr(link, "REST_S", 3600.0)
    broker = await new_broker(rabbit_url)
    broker.post(letter("q"), outcomes.append, later=True)
    await asyncio.sleep(0.5)  # the confirm has come, and lies in the socket

    async with asyncio.timeout(link.CLOSE_WITHIN_S):
        await broker.aclose()

    assert outcomes == [None]


async def test_a_link_that_is_back_does_not_rest_on_what_somebody_waits_for(
    broker: RabbitBroker, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[PublishOutcome] = []
    monkeypatch.setattr(link, "REST_S", 3600.0)
    proxy.cut()
    await eventually(lambda: proxy.link_count == 0)

    waiting = asyncio.create_task(broker.publish(letter("q")))
    await asyncio.sleep(0)
    broker.post(letter("q"), outcomes.append, later=True)
    proxy.restore()

    async with asyncio.timeout(WITHIN_S):
        await waiting
    await eventually(lambda: outcomes == [None])
