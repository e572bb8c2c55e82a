"""Calls that come in the middle of a recovery, or are given up half-way: none leaves a consumer behind, or deaf."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import eventually, hears, keepers, until_consumers

from canoa.broker.port import Queue, Settlement

if TYPE_CHECKING:
    from canoa.broker.port import Consumer
    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import TcpProxy

MOMENTS_S = [step * 0.07 for step in range(12)]
"""With a link that takes 30 ms each way: from before the new connection until after its consumers are set up."""


async def consumers_at_every_moment(broker: RabbitBroker, control: RabbitBroker) -> list[tuple[Consumer, Inbox]]:
    """One for each of `MOMENTS_S`, with a queue of its own."""
    made = []
    for number in range(len(MOMENTS_S)):
        inbox, queue = Inbox(), Queue(name=f"q{number}")
        made.append((await broker.consume(queue.name, inbox, prefetch=1, topology=[queue]), inbox))
    return made


def break_and_mend_slowly(proxy: TcpProxy) -> None:
    proxy.slow(delay_s=0.03)
    proxy.cut()
    proxy.restore()


async def test_a_consumer_cancelled_at_any_moment_of_a_recovery_stays_cancelled(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    consumers = await consumers_at_every_moment(broker, control)

    async def cancel(consumer: Consumer, moment_s: float) -> None:
        await asyncio.sleep(moment_s)
        await consumer.cancel()
        await consumer.wait_ended()

    break_and_mend_slowly(proxy)
    await asyncio.gather(*(cancel(consumer, at) for (consumer, _), at in zip(consumers, MOMENTS_S, strict=True)))

    await broker.depth("q")
    for consumer, inbox in consumers:
        await until_consumers(control, 0, consumer.queue)
        await control.publish(letter(consumer.queue))
        assert inbox.bodies == []
    assert [name for name in keepers() if name.startswith("consumer")] == []
    assert "INTERNAL_ERROR" not in caplog.text


async def test_a_prefetch_set_at_any_moment_of_a_recovery_holds(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    consumers = await consumers_at_every_moment(broker, control)

    async def widen(consumer: Consumer, moment_s: float) -> None:
        await asyncio.sleep(moment_s)
        await consumer.set_prefetch(3)

    break_and_mend_slowly(proxy)
    await asyncio.gather(*(widen(consumer, at) for (consumer, _), at in zip(consumers, MOMENTS_S, strict=True)))
    proxy.resume()

    for consumer, inbox in consumers:
        await control.publish_many(letters(consumer.queue, *numbered(5)))
        assert await inbox.take_bodies(3) == numbered(3)
        assert (await control.depth(consumer.queue)).messages == 2
    assert "INTERNAL_ERROR" not in caplog.text


async def test_a_change_of_prefetch_that_is_given_up_leaves_no_deaf_consumer(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(Settlement.ACK)
    consumer = await broker.consume("q", inbox, prefetch=1)
    proxy.slow(delay_s=0.05)

    for within_s in (0.0, 0.02, 0.07, 0.12):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(within_s):
                await consumer.set_prefetch(5)

        await hears(inbox, control)
    await until_consumers(control, 1)
    assert "broker_link_lost" not in caplog.text


async def test_a_consumer_cancelled_while_its_prefetch_changes_stays_cancelled(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.slow(delay_s=0.02)
    consumer = await broker.consume("q", Inbox(), prefetch=1)

    await asyncio.gather(
        consumer.set_prefetch(5), consumer.set_prefetch(7), consumer.cancel(), consumer.set_prefetch(9)
    )

    await broker.depth("q")
    assert (await control.depth("q")).consumers == 0
    assert "broker_link_lost" not in caplog.text


async def test_a_cancel_that_is_given_up_ends_the_consumer_all_the_same(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    for within_s in (0.0, 0.02, 0.07, 0.12):
        consumer = await broker.consume("q", Inbox(), prefetch=1)
        proxy.slow(delay_s=0.05)
        changing = asyncio.create_task(consumer.set_prefetch(5))
        await asyncio.sleep(0)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(within_s):
                await consumer.cancel()

        await changing
        await consumer.wait_ended()
        await until_consumers(control, 0)
        proxy.resume()
    assert "broker_link_lost" not in caplog.text


async def test_a_consume_that_is_given_up_leaves_no_consumer_behind(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy
) -> None:
    proxy.cut()
    await eventually(lambda: proxy.link_count == 0)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await broker.consume("q", Inbox(), prefetch=1)
    proxy.restore()

    await broker.depth("q")
    assert (await control.depth("q")).consumers == 0
    assert [name for name in keepers() if name.startswith("consumer")] == []
