"""Calls that come in the middle of a recovery, or are given up half-way: none leaves a consumer behind, or deaf."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import QUICK, WITHIN_S, eventually, hears, keepers, until_consumers

from canoa.broker.port import Queue, Settlement
from canoa.errors import BrokerUnreachable, WrongUse

if TYPE_CHECKING:
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.port import Consumer, PublishOutcome
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


# --- Closing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["cut", "stall"])
async def test_a_broker_whose_link_is_gone_closes_promptly_and_everyone_hears(
    trouble: str, new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    before = keepers()
    broker = await new_broker(proxy.via(rabbit_url), msgspec.structs.replace(QUICK, window=3))
    consumer = await broker.consume("q", Inbox(), prefetch=1)
    getattr(proxy, trouble)()
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
    assert {type(outcome) for outcome in (*outcomes, *many)} == {BrokerUnreachable}
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


# --- Posting ------------------------------------------------------------------------------------------


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
