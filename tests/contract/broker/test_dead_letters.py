"""Where messages go that a queue gives up, and what they say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered, received, received_bodies, until_holding

from canoa.broker import topology
from canoa.broker.port import Binding, Exchange, ExchangeKind, Publication, Queue, Settlement

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery, Message


async def reject_one(broker: Broker, queue: str) -> None:
    inbox = Inbox(Settlement.REJECT)
    consumer = await broker.consume(queue, inbox, prefetch=1)
    await inbox.take(1)
    await consumer.cancel()


def deaths(delivery: Delivery) -> list[dict[str, Any]]:
    found: Any = delivery.message.headers["x-death"]
    return list(found)


@pytest.fixture
async def graveyard(broker: Broker) -> Broker:
    """Queue `dead` gets all that is dead-lettered to exchange `grave`."""
    await broker.declare(
        Exchange(name="grave", kind=ExchangeKind.FANOUT), Queue(name="dead"), Binding(exchange="grave", queue="dead")
    )
    return broker


async def test_a_rejected_message_is_dead_lettered(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave"))
    await graveyard.publish(letter("q", b"bad", headers={"kept": "yes"}, correlation_id="c-1"))

    await reject_one(graveyard, "q")

    (dead,) = await received(graveyard, "dead", 1)
    assert (dead.message.body, dead.message.headers["kept"], dead.message.correlation_id) == (b"bad", "yes", "c-1")
    assert not dead.redelivered
    assert_first_death(dead, reason="rejected")


async def test_an_expired_message_is_dead_lettered_in_order(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave", message_ttl_s=0.05))

    await graveyard.publish_many(letters("q", *numbered(3)))

    dead = await received(graveyard, "dead", 3)
    assert [d.message.body for d in dead] == numbered(3)
    assert_first_death(dead[0], reason="expired")


async def test_a_message_that_a_full_queue_drops_is_dead_lettered(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave", max_length=1))

    await graveyard.publish_many(letters("q", b"oldest", b"newest"))

    (dead,) = await received(graveyard, "dead", 1)
    assert dead.message.body == b"oldest"
    assert_first_death(dead, reason="maxlen")


def assert_first_death(dead: Delivery, *, reason: str) -> None:
    """It came from queue `q`, where it was sent directly, to the exchange `grave` under its own key."""
    assert (dead.exchange, dead.key) == ("grave", "q")
    headers = dead.message.headers
    assert headers["x-first-death-reason"] == reason
    assert headers["x-first-death-queue"] == "q"
    assert headers["x-first-death-exchange"] == ""
    (death,) = deaths(dead)
    assert isinstance(death.pop("time"), int)
    assert death == {"queue": "q", "reason": reason, "count": 1, "exchange": "", "routing-keys": ["q"]}


async def test_a_purged_or_deleted_message_is_no_dead_letter(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave"))
    await graveyard.publish_many(letters("q", *numbered(3)))
    await graveyard.purge("q")
    await graveyard.publish_many(letters("q", *numbered(3)))
    await graveyard.delete_queue("q")

    await graveyard.publish(letter("", b"barrier", exchange="grave"))

    assert await received_bodies(graveyard, "dead", 1) == [b"barrier"]


async def test_a_dead_letter_key_replaces_the_messages_own(broker: Broker) -> None:
    await broker.declare(
        Queue(name="dead"), Queue(name="q", max_length=1, dead_letter_exchange="", dead_letter_key="dead")
    )

    await broker.publish_many(letters("q", b"1", b"2"))

    (dead,) = await received(broker, "dead", 1)
    assert (dead.exchange, dead.key, dead.message.body) == ("", "dead", b"1")


async def test_a_dead_letter_to_nowhere_is_dropped(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_length=1, dead_letter_exchange="missing"))

    outcomes = await broker.publish_many(letters("q", *numbered(3)))

    assert outcomes == [None] * 3
    assert await received_bodies(broker, "q", 1) == [b"2"]


async def test_a_dead_letter_lost_its_time_to_live_and_says_what_it_was(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave"))

    await graveyard.publish(letter("q", expiration_s=0.05))

    (dead,) = await received(graveyard, "dead", 1)
    assert dead.message.expiration_s is None
    assert deaths(dead)[0]["original-expiration"] == "50"


async def test_deaths_of_one_kind_are_counted_and_the_latest_comes_first(graveyard: Broker) -> None:
    await graveyard.declare(Queue(name="q", dead_letter_exchange="grave"))

    message = await die_by_rejection(graveyard, letter("q").message)
    message = await die_by_rejection(graveyard, message)
    await graveyard.publish(Publication(message=with_expiration(message, 0.02), key="q"))
    (dead,) = await received(graveyard, "dead", 1)

    assert [(d["reason"], d["count"]) for d in deaths(dead)] == [("expired", 1), ("rejected", 2)]
    assert dead.message.headers["x-first-death-reason"] == "rejected"


async def die_by_rejection(broker: Broker, message: Message) -> Message:
    await broker.publish(Publication(message=message, key="q"))
    await reject_one(broker, "q")
    (dead,) = await received(broker, "dead", 1)
    return dead.message


def with_expiration(message: Message, expiration_s: float) -> Message:
    return msgspec.structs.replace(message, expiration_s=expiration_s)


async def test_a_circle_of_expiries_ends_the_message(broker: Broker) -> None:
    await broker.declare(
        Queue(name="a", message_ttl_s=0.02, dead_letter_exchange="", dead_letter_key="b"),
        Queue(name="b", message_ttl_s=0.02, dead_letter_exchange="", dead_letter_key="a"),
    )
    await broker.publish(letter("a"))

    await until_holding(broker, "a", 0)
    await until_holding(broker, "b", 0)
    inbox = Inbox()
    await broker.consume("a", inbox, prefetch=1)
    await broker.publish(letter("a", b"barrier"))

    assert await inbox.take_bodies(1) == [b"barrier"]


async def test_a_circle_with_a_rejection_in_it_goes_on(broker: Broker) -> None:
    await broker.declare(
        Queue(name="work", dead_letter_exchange="", dead_letter_key="wait"),
        Queue(name="wait", message_ttl_s=0.02, dead_letter_exchange="", dead_letter_key="work"),
    )
    await broker.publish(letter("work", b"again"))

    for _ in range(3):
        await reject_one(broker, "work")

    (delivery,) = await received(broker, "work", 1)
    assert {d["reason"]: d["count"] for d in deaths(delivery)} == {"rejected": 3, "expired": 3}


async def test_a_dead_letter_may_die_again_elsewhere(graveyard: Broker) -> None:
    await graveyard.declare(
        Queue(name="second", max_length=1, dead_letter_exchange="grave"),
        Queue(name="first", max_length=1, dead_letter_exchange="", dead_letter_key="second"),
    )

    await graveyard.publish_many(letters("first", *numbered(3)))

    (dead,) = await received(graveyard, "dead", 1)
    assert dead.message.body == b"0"
    assert [d["queue"] for d in deaths(dead)] == ["second", "first"]


async def test_a_queue_without_time_keeps_nothing_that_nobody_can_take_at_once(graveyard: Broker) -> None:
    """Nor what comes back to it: who is gone had it."""
    await graveyard.declare(Queue(name="q", message_ttl_s=0, dead_letter_exchange="", dead_letter_key="dead"))
    inbox = Inbox()

    await graveyard.publish(letter("q", b"nobody is there"))
    await graveyard.consume("q", inbox, prefetch=1)
    await graveyard.publish_many(letters("q", b"at once", b"too much"))
    in_hand = await inbox.take_one()
    assert await received_bodies(graveyard, "dead", 2) == [b"nobody is there", b"too much"]
    in_hand.settle(Settlement.REQUEUE)

    assert await received_bodies(graveyard, "dead", 1) == [b"at once"]
    assert inbox.bodies == [b"at once"]


async def test_a_rung_of_the_retry_ladder_brings_a_message_back_to_its_action(broker: Broker) -> None:
    await broker.declare(*topology.shared(), *topology.of_action("shop.resize"))
    queue = topology.action_queue_name("shop.resize")

    await broker.publish(letter(queue, b"try again", exchange=topology.rung_name(0.1)))

    (delivery,) = await received(broker, queue, 1)
    assert (delivery.message.body, delivery.exchange, delivery.key) == (b"try again", "", queue)
