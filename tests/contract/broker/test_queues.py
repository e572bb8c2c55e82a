"""Queues themselves: declaring, looking, removing; whose they are, how long they live, what they hold and how long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import (
    POLL_EVERY_S,
    WITHIN_S,
    Inbox,
    is_there,
    letter,
    letters,
    numbered,
    received_bodies,
    until,
    until_gone,
    until_holding,
)

from canoa.broker.port import Depth, Overflow, Queue
from canoa.errors import BrokerRefusedOperation, DeclarationDiffers, QueueMissing

if TYPE_CHECKING:
    from tests.contract.broker.conftest import NewBroker

    from canoa.broker.port import Broker, Delivery


async def test_declaring_a_queue_again_keeps_what_it_holds(new_broker: NewBroker) -> None:
    broker, other = await new_broker(), await new_broker()
    queue = Queue(name="q", message_ttl_s=60, max_length=10, max_priority=3, expires_s=600)
    await broker.declare(queue)
    await broker.publish(letter("q"))

    await other.declare(queue)

    assert (await broker.depth("q")).messages == 1


@pytest.mark.parametrize(
    "other",
    [
        Queue(name="q", exclusive=True),
        Queue(name="q", quorum=True),
        Queue(name="q", expires_s=60),
        Queue(name="q", message_ttl_s=1),
        Queue(name="q", max_length=1),
        Queue(name="q", dead_letter_exchange=""),
        Queue(name="q", max_priority=2),
        Queue(name="q", single_active_consumer=True),
    ],
    ids=lambda queue: str(queue).removeprefix("Queue(name='q', ")[:24],
)
async def test_a_queue_with_other_traits_is_refused(broker: Broker, other: Queue) -> None:
    await broker.declare(Queue(name="q"))

    with pytest.raises(BrokerRefusedOperation if other.exclusive else DeclarationDiffers):
        await broker.declare(other)

    assert await is_there(broker, "q")


async def test_a_queue_with_another_dead_letter_key_is_refused_also_to_who_would_consume(broker: Broker) -> None:
    await broker.declare(Queue(name="q", dead_letter_exchange="", dead_letter_key="one"))
    other = Queue(name="q", dead_letter_exchange="", dead_letter_key="another")

    with pytest.raises(DeclarationDiffers):
        await broker.declare(other)
    with pytest.raises(DeclarationDiffers):
        await broker.consume("q", Inbox(), prefetch=1, topology=[other])

    assert await broker.depth("q") == Depth(0, 0)


@pytest.mark.parametrize(
    "impossible",
    [
        Queue(name="amq.mine"),
        Queue(name="q", quorum=True, max_priority=3),
        Queue(name="q", quorum=True, exclusive=True),
        Queue(name="q", max_priority=256),
        Queue(name="q", dead_letter_key="without-exchange"),
    ],
    ids=["reserved name", "quorum priorities", "quorum exclusive", "priority 256", "dead-letter key alone"],
)
async def test_an_impossible_queue_is_refused_and_the_broker_goes_on(broker: Broker, impossible: Queue) -> None:
    with pytest.raises(BrokerRefusedOperation):
        await broker.declare(impossible)

    await broker.declare(Queue(name="fine"))


async def test_a_quorum_queue_carries_messages(broker: Broker) -> None:
    await broker.declare(Queue(name="q", quorum=True))

    await broker.publish_many(letters("q", *numbered(3)))

    assert await received_bodies(broker, "q", 3) == numbered(3)


async def test_depth_counts_what_is_ready_and_who_consumes(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    assert await broker.depth("q") == Depth(0, 0)
    await broker.publish_many(letters("q", *numbered(5)))
    assert await broker.depth("q") == Depth(5, 0)
    inbox = Inbox()

    await broker.consume("q", inbox, prefetch=2)
    await inbox.take(2)

    assert await until_holding(broker, "q", 3) == Depth(3, 1)


async def test_looking_at_a_missing_queue_does_not_make_it(broker: Broker) -> None:
    with pytest.raises(QueueMissing, match="nowhere"):
        await broker.depth("nowhere")

    assert not await is_there(broker, "nowhere")


async def test_purging_drops_what_is_ready_and_spares_what_is_in_hand(broker: Broker) -> None:
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=2, topology=[Queue(name="q")])
    await broker.publish_many(letters("q", *numbered(5)))
    first, second = await inbox.take(2)
    await until_holding(broker, "q", 3)

    assert await broker.purge("q") == 3

    assert (await broker.depth("q")).messages == 0
    assert first.settle()
    assert second.settle()


async def test_purging_a_missing_queue_is_an_error(broker: Broker) -> None:
    with pytest.raises(QueueMissing):
        await broker.purge("nowhere")


async def test_deleting_removes_a_queue_with_all_it_holds(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    await broker.publish(letter("q"))

    await broker.delete_queue("q")

    with pytest.raises(QueueMissing):
        await broker.depth("q")
    await broker.declare(Queue(name="q"))
    assert await broker.depth("q") == Depth(0, 0)


async def test_deleting_what_is_not_there_is_no_error(broker: Broker) -> None:
    await broker.delete_queue("nowhere")


# --- Exclusive ------------------------------------------------------------------------------------


async def test_an_exclusive_queue_is_closed_to_others_but_takes_their_messages(new_broker: NewBroker) -> None:
    owner, other = await new_broker(), await new_broker()
    await owner.declare(Queue(name="mine", exclusive=True))

    with pytest.raises(BrokerRefusedOperation):
        await other.consume("mine", Inbox(), prefetch=1)
    with pytest.raises(BrokerRefusedOperation):
        await other.declare(Queue(name="mine", exclusive=True))
    with pytest.raises(BrokerRefusedOperation):
        await other.depth("mine")
    with pytest.raises(BrokerRefusedOperation):
        await other.delete_queue("mine")

    await other.publish(letter("mine", b"for you"))
    assert await received_bodies(owner, "mine", 1) == [b"for you"]


async def test_an_exclusive_queue_goes_with_its_owner(new_broker: NewBroker) -> None:
    owner, other = await new_broker(), await new_broker()
    await owner.consume("mine", Inbox(), prefetch=1, topology=[Queue(name="mine", exclusive=True)])
    assert await is_there(other, "mine")

    await owner.aclose()

    await until_gone(other, "mine")
    await other.declare(Queue(name="mine", exclusive=True))


async def test_a_durable_queue_stays_when_its_declarer_goes(new_broker: NewBroker) -> None:
    first, second = await new_broker(), await new_broker()
    await first.declare(Queue(name="q"))
    await first.publish(letter("q", b"kept"))

    await first.aclose()

    assert await received_bodies(second, "q", 1) == [b"kept"]


# --- Expiring: a second queue that nobody uses is the clock ----------------------------------------------

SOON_S = 0.3
USED_WITHIN_S = 2.0  # a busy machine is slow, but comes back to a queue within this


async def test_an_unused_queue_expires_even_if_messages_come(broker: Broker) -> None:
    await broker.declare(Queue(name="q", expires_s=SOON_S))
    assert await is_there(broker, "q")

    await until_gone(broker, "q")


async def test_a_consumer_keeps_a_queue_from_expiring_until_it_ends(broker: Broker) -> None:
    consumer = await broker.consume("q", Inbox(), prefetch=1, topology=[Queue(name="q", expires_s=SOON_S)])
    await broker.declare(Queue(name="clock", expires_s=SOON_S))

    await until_gone(broker, "clock")

    assert await is_there(broker, "q")
    await consumer.cancel()
    await until_gone(broker, "q")


@pytest.mark.parametrize("how", ["declaring", "looking"])
async def test_using_a_queue_keeps_it_from_expiring(broker: Broker, how: str) -> None:
    queue = Queue(name="q", expires_s=USED_WITHIN_S)
    await broker.declare(queue, Queue(name="clock", expires_s=USED_WITHIN_S))

    async with asyncio.timeout(WITHIN_S):
        while await is_there(broker, "clock"):
            await (broker.declare(queue) if how == "declaring" else broker.depth("q"))
            await asyncio.sleep(POLL_EVERY_S)

    assert await is_there(broker, "q")


async def test_a_declaration_that_is_refused_does_not_keep_a_queue_from_expiring(broker: Broker) -> None:
    await broker.declare(Queue(name="q", expires_s=SOON_S))

    async def is_free() -> bool:
        try:
            await broker.declare(Queue(name="q"))
        except DeclarationDiffers:
            return False
        return True

    assert not await is_free()
    await until(is_free)


# --- Time to live ---------------------------------------------------------------------------------------


async def test_messages_over_the_queues_time_to_live_vanish(broker: Broker) -> None:
    await broker.declare(Queue(name="q", message_ttl_s=0.1))
    await broker.publish_many(letters("q", *numbered(3)))
    assert (await broker.depth("q")).messages == 3

    await until_holding(broker, "q", 0)


async def test_the_shorter_of_both_times_to_live_counts(broker: Broker) -> None:
    await broker.declare(Queue(name="short", message_ttl_s=0.1), Queue(name="long", message_ttl_s=60))
    await broker.publish(letter("short", expiration_s=60))
    await broker.publish(letter("long", expiration_s=0.1))

    await until_holding(broker, "short", 0)
    await until_holding(broker, "long", 0)


async def test_a_messages_own_time_to_live_is_only_seen_at_the_head(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Queue(name="clock"))
    await broker.publish(letter("q", b"blocks the head"))
    await broker.publish_many([letter("q", b"over", expiration_s=0.05), letter("clock", expiration_s=0.1)])
    await until_holding(broker, "clock", 0)
    assert (await broker.depth("q")).messages == 2

    assert await received_bodies(broker, "q", 1) == [b"blocks the head"]

    await until_holding(broker, "q", 0)


async def test_an_expired_message_is_never_delivered(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Queue(name="clock"))
    inbox = Inbox()

    def hold_the_first(delivery: Delivery) -> None:
        inbox(delivery)
        if delivery.message.body != b"held":
            delivery.settle()

    await broker.consume("q", hold_the_first, prefetch=1)
    await broker.publish_many(
        [letter("q", b"held"), letter("q", b"lasting"), letter("q", b"late", expiration_s=0.05), letter("q", b"last")]
    )
    await broker.publish(letter("clock", expiration_s=0.1))
    held = await inbox.take_one()
    await until_holding(broker, "clock", 0)

    held.settle()

    assert await inbox.take_bodies(2) == [b"lasting", b"last"]


async def test_a_message_without_time_to_live_reaches_a_waiting_consumer(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=1)

    await broker.publish(letter("q", b"now or never", expiration_s=0))

    assert await inbox.take_bodies(1) == [b"now or never"]


# --- Length ---------------------------------------------------------------------------------------------


async def test_a_full_queue_drops_its_oldest(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_length=3))

    outcomes = await broker.publish_many(letters("q", *numbered(5)))

    assert outcomes == [None] * 5
    assert await received_bodies(broker, "q", 3) == [b"2", b"3", b"4"]


async def test_a_full_queue_may_refuse_the_newest(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_length=3, overflow=Overflow.REJECT_PUBLISH))

    outcomes = await broker.publish_many(letters("q", *numbered(5)))

    assert [outcome is None for outcome in outcomes] == [True, True, True, False, False]
    assert await received_bodies(broker, "q", 3) == numbered(3)


async def test_what_is_in_hand_does_not_count_for_the_length(broker: Broker) -> None:
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=3, topology=[Queue(name="q", max_length=1)])

    await broker.publish_many(letters("q", *numbered(4)))

    assert await inbox.take_bodies(3) == numbered(3)
    await until_holding(broker, "q", 1)
