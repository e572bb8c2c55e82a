"""Channels that the broker closes and consumers that it cancels: repaired one by one, their neighbours unharmed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import WITHIN_S, eventually, hears, until_consumers

from canoa.broker.amqp.consumer import AmqpDelivery
from canoa.broker.port import Binding, Exchange, ExchangeKind, Queue, Settlement
from canoa.errors import BrokerRefusedOperation, DeliveryUnknown, QueueMissing, Unroutable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.port import Delivery, PublishOutcome
    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import RabbitNode, TcpProxy


def acknowledge_what_was_never_delivered(on_channel_of: Delivery) -> None:
    """The broker closes a channel for that (406)."""
    assert isinstance(on_channel_of, AmqpDelivery)
    assert on_channel_of._channel is not None
    on_channel_of._channel.settle(4711, Settlement.ACK)


async def test_a_consumer_whose_channel_was_closed_consumes_again_and_its_neighbour_does_not_notice(
    broker: RabbitBroker, control: RabbitBroker
) -> None:
    await control.declare(Queue(name="neighbour"))
    inbox, neighbour = Inbox(), Inbox()
    await broker.consume("q", inbox, prefetch=1)
    await broker.consume("neighbour", neighbour, prefetch=1)
    await control.publish_many([letter("q", b"mine"), letter("neighbour", b"theirs")])
    mine, theirs = await inbox.take_one(), await neighbour.take_one()

    acknowledge_what_was_never_delivered(mine)

    again = await inbox.take_one()
    assert (again.message.body, again.redelivered) == (b"mine", True)
    assert not mine.settle()
    assert theirs.settle()
    await broker.aclose()
    assert (await control.depth("neighbour")).messages == 0
    assert (await control.depth("q")).messages == 1


async def test_publishing_to_a_missing_exchange_is_told_from_what_only_shared_its_channel(
    broker: RabbitBroker, control: RabbitBroker
) -> None:
    others = letters("q", *numbered(20))

    outcomes = await broker.publish_many([*others[:10], letter("q", exchange="nowhere"), *others[10:]])

    assert isinstance(outcomes[10], Unroutable)
    shared = outcomes[:10] + outcomes[11:]
    assert all(outcome is None or isinstance(outcome, DeliveryUnknown) for outcome in shared)
    assert isinstance(outcomes[-1], DeliveryUnknown)
    assert await broker.publish_many(others) == [None] * 20


async def test_posting_in_the_moment_the_channel_closes_does_not_harm_the_link(
    broker: RabbitBroker, caplog: pytest.LogCaptureFixture
) -> None:
    taken: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()

    def post_again(outcome: PublishOutcome) -> None:
        assert isinstance(outcome, Unroutable)
        broker.post(letter("q", b"right after"), taken.set_result)

    broker.post(letter("q", exchange="nowhere"), post_again)

    async with asyncio.timeout(WITHIN_S):
        assert await taken is None
    assert "broker_channel_lost" in caplog.text
    assert "broker_link_lost" not in caplog.text


# --- Cancelled by the broker ------------------------------------------------------------------------


async def test_a_deleted_queue_comes_back_with_its_binding_when_its_topology_is_known(
    broker: RabbitBroker, control: RabbitBroker
) -> None:
    topology = (
        Exchange(name="news", kind=ExchangeKind.FANOUT),
        Queue(name="mine"),
        Binding(exchange="news", queue="mine"),
    )
    inbox = Inbox(Settlement.ACK)
    await broker.consume("mine", inbox, prefetch=1, topology=topology)

    await control.delete_queue("mine")

    await until_consumers(control, 1, "mine")
    await control.publish(letter("", b"news", exchange="news"))
    await eventually(lambda: b"news" in inbox.bodies)


async def test_a_queue_that_is_deleted_between_being_declared_and_consumed_is_declared_again(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy
) -> None:
    inbox = Inbox(Settlement.ACK)
    await broker.consume("mine", inbox, prefetch=1, topology=[Queue(name="mine")])
    proxy.slow(delay_s=0.05)

    for _ in range(3):
        await control.delete_queue("mine")
        await until_consumers(control, 0, "mine")
    await control.delete_queue("mine")

    await until_consumers(control, 1, "mine")
    await hears(inbox, control, "mine")


async def test_a_deleted_queue_ends_its_consumer_loudly_when_nobody_said_how_to_declare_it(
    broker: RabbitBroker, control: RabbitBroker
) -> None:
    consumer = await broker.consume("q", Inbox(), prefetch=1)

    await control.delete_queue("q")

    with pytest.raises(QueueMissing, match="'q'"):
        async with asyncio.timeout(WITHIN_S):
            await consumer.wait_ended()


async def test_settling_what_came_from_a_deleted_queue_does_not_harm_the_link(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    await control.declare(Queue(name="mine"))
    inbox, neighbour = Inbox(), Inbox()
    consumer = await broker.consume("mine", inbox, prefetch=50)
    await broker.consume("q", neighbour, prefetch=1)
    await control.publish_many([*letters("mine", *numbered(50)), letter("q", b"theirs")])
    in_hand, theirs = await inbox.take(50), await neighbour.take_one()
    proxy.slow(delay_s=0.1)  # the channel stays half closed for some time

    deleting = asyncio.create_task(control.delete_queue("mine"))
    for delivery in in_hand:
        delivery.settle()
        await asyncio.sleep(0.01)

    await deleting
    with pytest.raises(QueueMissing):
        await consumer.wait_ended()
    assert theirs.settle()
    assert "broker_link_lost" not in caplog.text


async def test_the_late_end_of_an_old_channel_is_not_taken_for_that_of_the_new_one(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(Settlement.ACK)
    await broker.consume("mine", inbox, prefetch=1, topology=[Queue(name="mine")])
    proxy.slow(delay_s=0.2)  # longer than the pause before the new channel

    await control.delete_queue("mine")
    await until_consumers(control, 1, "mine")
    await hears(inbox, control, "mine")

    assert caplog.text.count("broker_channel_lost") == 1


# --- Others that stand in the way ----------------------------------------------------------------------


@pytest.fixture
def impatient_node(rabbit_node: RabbitNode) -> Iterator[None]:
    """The shared node gives a consumer one second to settle, and looks twice a second; as before, afterwards."""

    def look(*, every_ms: int, timeout_ms: int) -> None:
        values = f"[{{consumer_timeout, {timeout_ms}}}, {{channel_tick_interval, {every_ms}}}]"
        rabbit_node.ctl("eval", f"[application:set_env(rabbit, Name, Value) || {{Name, Value}} <- {values}].")

    look(every_ms=500, timeout_ms=1_000)
    yield
    look(every_ms=60_000, timeout_ms=1_800_000)


async def test_a_consumer_that_held_a_message_for_too_long_gets_it_again(
    impatient_node: None, broker: RabbitBroker, control: RabbitBroker
) -> None:
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=1)
    await control.publish(letter("q", b"slow work"))
    held = await inbox.take_one()

    again = await inbox.take_one()

    assert again.redelivered
    assert held.is_settled
    assert again.settle()


async def test_an_exclusive_queue_that_is_still_locked_by_a_dead_link_is_waited_for(
    broker: RabbitBroker, new_broker: NewBroker, proxy: TcpProxy, rabbit_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = Queue(name="mine", exclusive=True)
    inbox = Inbox(Settlement.ACK)
    await broker.consume("mine", inbox, prefetch=1, topology=[mine])
    proxy.cut()
    ghost = await lock(mine, await new_broker(rabbit_url))

    proxy.restore()
    await eventually(lambda: "RESOURCE_LOCKED" in caplog.text)
    await ghost.aclose()

    await until_consumers(broker, 1, "mine")
    await hears(inbox, broker, "mine")


async def lock(queue: Queue, ghost: RabbitBroker) -> RabbitBroker:
    """Take the queue's name as soon as its owner's connection is gone, as a connection that lingers would have it."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await ghost.declare(queue)
            except BrokerRefusedOperation:
                continue
            return ghost


async def test_an_exclusive_queue_that_stays_locked_ends_its_consumer_loudly(
    broker: RabbitBroker, new_broker: NewBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    mine = Queue(name="mine", exclusive=True)
    consumer = await broker.consume("mine", Inbox(), prefetch=1, topology=[mine])
    proxy.cut()
    await lock(mine, await new_broker(rabbit_url))

    proxy.restore()

    with pytest.raises(BrokerRefusedOperation, match="mine"):
        async with asyncio.timeout(WITHIN_S):
            await consumer.wait_ended()
