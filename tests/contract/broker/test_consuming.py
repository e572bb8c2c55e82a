"""What a consumer may count on: how much it holds, what settling does, and that it is never connected and deaf."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import (
    WITHIN_S,
    Inbox,
    letter,
    letters,
    numbered,
    received,
    received_bodies,
    until,
    until_holding,
)

from canoa.broker.port import Queue, Settlement
from canoa.errors import BrokerRefusedOperation, QueueMissing

if TYPE_CHECKING:
    from tests.contract.broker.conftest import NewBroker

    from canoa.broker.port import Broker, Delivery


@pytest.fixture
async def holding_five(broker: Broker) -> Broker:
    """Queue `q` holds the messages 0 to 4."""
    await broker.declare(Queue(name="q"))
    await broker.publish_many(letters("q", *numbered(5)))
    return broker


async def test_consuming_declares_its_topology_first(broker: Broker) -> None:
    await broker.consume("q", Inbox(), prefetch=1, topology=[Queue(name="q")])

    assert (await broker.depth("q")).consumers == 1


async def test_consuming_a_missing_queue_is_refused(broker: Broker) -> None:
    with pytest.raises(QueueMissing, match="nowhere"):
        await broker.consume("nowhere", Inbox(), prefetch=1)


async def test_consuming_with_a_topology_that_differs_is_refused(holding_five: Broker) -> None:
    with pytest.raises(BrokerRefusedOperation):
        await holding_five.consume("q", Inbox(), prefetch=1, topology=[Queue(name="q", max_length=7)])


async def test_a_consumer_listens_until_it_is_cancelled(holding_five: Broker) -> None:
    consumer = await holding_five.consume("q", Inbox(), prefetch=1)
    was_listening = consumer.is_listening
    await consumer.set_prefetch(2)
    still_listening = consumer.is_listening

    await consumer.cancel()

    assert (was_listening, still_listening, consumer.is_listening) == (True, True, False)


async def test_a_consumer_names_its_queue(holding_five: Broker) -> None:
    consumer = await holding_five.consume("q", Inbox(), prefetch=1)

    assert consumer.queue == "q"


async def test_a_queue_serves_its_consumers_in_turn(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    first, second = Inbox(), Inbox()
    await broker.declare(Queue(name="q"))
    await broker.consume("q", first, prefetch=10)
    await other.consume("q", second, prefetch=10)

    await broker.publish_many(letters("q", *numbered(6)))

    assert await first.take_bodies(3) == [b"0", b"2", b"4"]
    assert await second.take_bodies(3) == [b"1", b"3", b"5"]


async def test_a_consumer_without_room_leaves_its_turn_to_others(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    narrow, wide = Inbox(), Inbox()
    await broker.declare(Queue(name="q"))
    await broker.consume("q", narrow, prefetch=1)
    await other.consume("q", wide, prefetch=10)

    await broker.publish_many(letters("q", *numbered(6)))

    assert await narrow.take_bodies(1) == [b"0"]
    assert await wide.take_bodies(5) == [b"1", b"2", b"3", b"4", b"5"]


# --- How much it holds ----------------------------------------------------------------------------


async def test_a_consumer_holds_no_more_than_its_prefetch(holding_five: Broker) -> None:
    inbox = Inbox()
    await holding_five.consume("q", inbox, prefetch=2)

    await inbox.take(2)

    await until_holding(holding_five, "q", 3)
    assert inbox.bodies == [b"0", b"1"]


async def test_settling_one_makes_room_for_one(holding_five: Broker) -> None:
    inbox = Inbox()
    await holding_five.consume("q", inbox, prefetch=2)
    first, _ = await inbox.take(2)

    first.settle()

    assert await inbox.take_bodies(1) == [b"2"]
    await until_holding(holding_five, "q", 2)


async def test_a_wider_prefetch_brings_more(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=1)
    first = await inbox.take_one()

    await consumer.set_prefetch(3)

    assert await inbox.take_bodies(2) == [b"1", b"2"]
    assert first.settle()


async def test_a_narrower_prefetch_holds_back_once_the_hands_are_empty(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=5)
    in_hand = await inbox.take(5)

    await consumer.set_prefetch(1)
    for delivery in in_hand:
        assert delivery.settle()
    await holding_five.publish_many(letters("q", b"5", b"6", b"7"))

    assert await inbox.take_bodies(1) == [b"5"]
    await until_holding(holding_five, "q", 2)


async def test_a_new_prefetch_counts_for_a_consumer_that_holds_nothing(broker: Broker) -> None:
    inbox = Inbox()
    consumer = await broker.consume("q", inbox, prefetch=5, topology=[Queue(name="q")])

    await consumer.set_prefetch(2)
    await broker.publish_many(letters("q", *numbered(5)))

    assert await inbox.take_bodies(2) == [b"0", b"1"]
    await until_holding(broker, "q", 3)


# --- Settling -------------------------------------------------------------------------------------


async def test_an_acknowledged_message_is_gone(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    inbox = Inbox(Settlement.ACK)
    await broker.consume("q", inbox, prefetch=1, topology=[Queue(name="q")])
    await other.publish(letter("q"))
    await inbox.take(1)

    await broker.aclose()

    assert (await other.depth("q")).messages == 0


async def test_a_requeued_message_comes_again_marked_as_redelivered(holding_five: Broker) -> None:
    inbox = Inbox()
    await holding_five.consume("q", inbox, prefetch=1)
    first = await inbox.take_one()

    first.settle(Settlement.REQUEUE)

    again = await inbox.take_one()
    assert again.message == first.message
    assert (first.redelivered, again.redelivered) == (False, True)
    again.settle()
    assert not (await inbox.take_one()).redelivered


async def test_requeued_messages_go_back_to_their_old_places(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=3)
    zero, one, two = await inbox.take(3)
    await consumer.cancel()

    for delivery in (two, zero, one):
        assert delivery.settle(Settlement.REQUEUE)
    await until_holding(holding_five, "q", 5)

    deliveries = await received(holding_five, "q", 5)
    assert [d.message.body for d in deliveries] == numbered(5)
    assert [d.redelivered for d in deliveries] == [True, True, True, False, False]


async def test_a_rejected_message_without_a_dead_letter_exchange_is_dropped(holding_five: Broker) -> None:
    inbox = Inbox(Settlement.REJECT)
    await holding_five.consume("q", inbox, prefetch=5)

    await inbox.take(5)

    await holding_five.aclose()
    assert all(delivery.is_settled for delivery in inbox.deliveries)


async def test_a_delivery_is_settled_once(holding_five: Broker) -> None:
    inbox = Inbox()
    await holding_five.consume("q", inbox, prefetch=1)
    delivery = await inbox.take_one()
    assert not delivery.is_settled

    assert delivery.settle(Settlement.ACK)

    assert delivery.is_settled
    assert not delivery.settle(Settlement.REQUEUE)
    assert not delivery.settle(Settlement.ACK)
    assert (await inbox.take_one()).message.body == b"1"


async def test_settling_through_settles_all_before_and_none_after(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    inbox = Inbox()
    consumer = await broker.consume("q", inbox, prefetch=5, topology=[Queue(name="q")])
    await broker.publish_many(letters("q", *numbered(5)))
    deliveries = await inbox.take(5)

    assert consumer.settle_through(deliveries[2])

    assert [d.is_settled for d in deliveries] == [True, True, True, False, False]
    assert not any(d.settle() for d in deliveries[:3])
    await broker.aclose()
    assert await received_bodies(other, "q", 2) == [b"3", b"4"]


async def test_settling_through_spares_what_was_settled_otherwise(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=5)
    zero, one, two, three, four = await inbox.take(5)
    assert one.settle(Settlement.ACK)

    assert consumer.settle_through(three, Settlement.REQUEUE)

    assert not consumer.settle_through(two)
    assert [(d.message.body, d.redelivered) for d in await inbox.take(3)] == [(b"0", True), (b"2", True), (b"3", True)]
    assert (zero.is_settled, four.is_settled) == (True, False)


async def test_settling_through_follows_arrival_not_age(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=2)
    zero, one = await inbox.take(2)
    zero.settle(Settlement.REQUEUE)
    zero_again = await inbox.take_one()

    assert consumer.settle_through(one)

    assert one.is_settled
    assert not zero_again.is_settled


# --- The end of a consumer, or of its link -----------------------------------------------------------


async def test_closing_gives_unsettled_deliveries_to_others(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=3, topology=[Queue(name="q")])
    await broker.publish_many(letters("q", *numbered(3)))
    zero, one, two = await inbox.take(3)
    one.settle()

    await broker.aclose()

    assert [(d.message.body, d.redelivered) for d in await received(other, "q", 2)] == [(b"0", True), (b"2", True)]
    assert not zero.settle()
    assert not two.settle(Settlement.REJECT)


async def test_what_was_settled_just_before_closing_stays_settled(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=100, topology=[Queue(name="q")])
    await broker.publish_many(letters("q", *numbered(100)))
    deliveries = await inbox.take(100)

    for delivery in deliveries[:99]:
        delivery.settle()
    await broker.aclose()

    assert await received_bodies(other, "q", 1) == [b"99"]
    assert (await other.depth("q")).messages == 0


async def test_closing_ends_consumers_quietly(new_broker: NewBroker) -> None:
    broker = await new_broker()
    consumer = await broker.consume("q", Inbox(), prefetch=3, topology=[Queue(name="q")])

    await broker.aclose()

    async with asyncio.timeout(WITHIN_S):
        await consumer.wait_ended()


async def test_a_cancelled_consumer_takes_nothing_new_and_may_settle_what_it_holds(holding_five: Broker) -> None:
    inbox = Inbox()
    consumer = await holding_five.consume("q", inbox, prefetch=2)
    zero, one = await inbox.take(2)

    await consumer.cancel()

    async with asyncio.timeout(WITHIN_S):
        await consumer.wait_ended()
    assert zero.settle()
    assert one.settle(Settlement.REQUEUE)
    assert (await until_holding(holding_five, "q", 4)).consumers == 0
    assert len(inbox.deliveries) == 2


async def test_cancelling_twice_is_allowed(holding_five: Broker) -> None:
    consumer = await holding_five.consume("q", Inbox(), prefetch=2)

    await consumer.cancel()
    await consumer.cancel()


async def test_a_cancelled_consumer_leaves_the_queue_to_others(holding_five: Broker) -> None:
    inbox = Inbox(Settlement.ACK)
    consumer = await holding_five.consume("q", Inbox(Settlement.REQUEUE), prefetch=1)
    await consumer.cancel()

    await holding_five.consume("q", inbox, prefetch=1)

    assert sorted(await inbox.take_bodies(5)) == numbered(5)


async def test_a_consumer_says_when_it_has_recovered_and_not_before(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    recovered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    topology = [Queue(name="q")]
    await broker.consume("q", Inbox(), prefetch=1, topology=topology, on_recovered=recovered.set_result)
    assert not recovered.done()

    await other.delete_queue("q")

    async with asyncio.timeout(WITHIN_S):
        assert 0 <= await recovered < WITHIN_S


async def test_a_consumer_whose_queue_is_deleted_declares_it_again_and_goes_on(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=1, topology=[Queue(name="q", max_length=10)])
    await other.publish(letter("q", b"before"))
    before = await inbox.take_one()

    await other.delete_queue("q")
    await until(lambda: is_consumed(other, "q"))
    await other.publish(letter("q", b"after"))

    assert await inbox.take_bodies(1) == [b"after"]
    assert not before.settle()


async def is_consumed(broker: Broker, queue: str) -> bool:
    try:
        return (await broker.depth(queue)).consumers > 0
    except QueueMissing:
        return False


async def test_a_consumer_whose_queue_is_gone_for_good_ends_loudly(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    await broker.declare(Queue(name="q"))
    consumer = await broker.consume("q", Inbox(), prefetch=1)

    await other.delete_queue("q")

    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(QueueMissing):
            await consumer.wait_ended()


async def test_a_callback_that_raises_ends_nothing_and_keeps_its_delivery(
    holding_five: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()

    def fails_on_zero(delivery: Delivery) -> None:
        inbox(delivery)
        if delivery.message.body == b"0":
            raise RuntimeError("a bug of the caller")

    with caplog.at_level(logging.ERROR, logger="canoa"):
        await holding_five.consume("q", fails_on_zero, prefetch=2)
        zero, one = await inbox.take(2)
        one.settle()
        assert await inbox.take_bodies(1) == [b"2"]

    assert not zero.is_settled
    assert ["a bug of the caller" in (record.exc_text or str(record.exc_info)) for record in caplog.records] == [True]
