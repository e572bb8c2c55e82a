"""Leaving in the middle of trouble: promptly, completely, and everyone who waits hears."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import QUICK, eventually, keepers

from canoa.errors import BrokerUnreachable, DeliveryUnknown

if TYPE_CHECKING:
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import TcpProxy


@pytest.mark.parametrize(("trouble", "is_noticed"), [("cut", True), ("stall", True), ("stall", False)])
async def test_a_broker_whose_link_is_gone_closes_promptly_and_everyone_hears(
    trouble: str, is_noticed: bool, new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    before = keepers()
    broker = await new_broker(proxy.via(rabbit_url), msgspec.structs.replace(QUICK, window=3))
    consumer = await broker.consume("q", Inbox(), prefetch=1)
    getattr(proxy, trouble)()
    if is_noticed:
        await eventually(lambda: proxy.link_count != 2)
    waiting = [
        asyncio.create_task(broker.consume("q", Inbox(), prefetch=1)),
        asyncio.create_task(broker.depth("q")),
        asyncio.create_task(broker.publish_many(letters("q", *numbered(20)))),
        *(asyncio.create_task(broker.publish(letter("q"))) for _ in range(20)),
    ]
    await asyncio.sleep(0)

    started = time.monotonic()
    await broker.aclose()

    assert time.monotonic() - started < 3.0
    async with asyncio.timeout(1):
        await consumer.wait_ended()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    many = outcomes.pop(2)
    assert isinstance(many, list)
    assert {type(outcome) for outcome in (*outcomes, *many)} <= {BrokerUnreachable, DeliveryUnknown}
    assert keepers() == before


async def test_a_broker_that_closes_too_slowly_for_its_caller_is_gone_all_the_same(
    new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    before = keepers()
    broker = await new_broker(proxy.via(rabbit_url))
    proxy.stall()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await broker.aclose()

    proxy.resume()
    await eventually(lambda: proxy.link_count == 0)
    assert keepers() == before
