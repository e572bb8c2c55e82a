"""Who and what is served first: priorities, and a single active consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.broker.inbox import Inbox, letter, letters, numbered, received_bodies, until_holding

from canoa.broker.port import Queue, Settlement

if TYPE_CHECKING:
    from tests.contract.broker.conftest import NewBroker

    from canoa.broker.port import Broker


async def test_higher_priorities_come_first_and_equal_ones_in_order(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_priority=5))
    priorities = [None, 5, 1, 200, 0, 5, 1]

    for number, priority in enumerate(priorities):
        await broker.publish(letter("q", b"%d" % number, priority=priority))

    # What is above the maximum counts as the maximum; none is the lowest.
    assert await received_bodies(broker, "q", 7) == [b"1", b"3", b"5", b"2", b"6", b"0", b"4"]


async def test_a_requeued_message_keeps_its_priority(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_priority=5))
    await broker.publish_many([letter("q", b"high", priority=3), letter("q", b"low", priority=1)])
    inbox = Inbox()
    consumer = await broker.consume("q", inbox, prefetch=2)
    in_hand = await inbox.take(2)
    await consumer.cancel()
    for delivery in in_hand:
        delivery.settle(Settlement.REQUEUE)
    await until_holding(broker, "q", 2)

    await broker.publish(letter("q", b"middle", priority=2))

    assert await received_bodies(broker, "q", 3) == [b"high", b"middle", b"low"]


async def test_a_single_active_consumer_has_the_queue_to_itself_until_it_ends(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    first, second, third = Inbox(Settlement.ACK), Inbox(Settlement.ACK), Inbox(Settlement.ACK)
    queue = Queue(name="q", single_active_consumer=True)
    await broker.consume("q", first, prefetch=1, topology=[queue])
    active_next = await other.consume("q", second, prefetch=1, topology=[queue])
    await other.consume("q", third, prefetch=1, topology=[queue])

    await other.publish_many(letters("q", *numbered(4)))
    assert await first.take_bodies(4) == numbered(4)
    await broker.aclose()
    await other.publish_many(letters("q", b"4", b"5"))
    assert await second.take_bodies(2) == [b"4", b"5"]
    await active_next.cancel()
    await other.publish(letter("q", b"6"))
    assert await third.take_bodies(1) == [b"6"]

    assert (len(first.deliveries), len(second.deliveries), len(third.deliveries)) == (4, 2, 1)


async def test_a_full_single_active_consumer_is_not_helped_out(new_broker: NewBroker) -> None:
    broker = await new_broker()
    first, second = Inbox(), Inbox()
    await broker.consume("q", first, prefetch=1, topology=[Queue(name="q", single_active_consumer=True)])
    await broker.consume("q", second, prefetch=10)

    await broker.publish_many(letters("q", *numbered(3)))

    await first.take(1)
    await until_holding(broker, "q", 2)
    assert second.deliveries == []
