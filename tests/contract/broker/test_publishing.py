"""What a publisher hears, and what arrives: confirms, outcomes, and messages as they were sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import WITHIN_S, Inbox, letter, letters, numbered, received, received_bodies

from canoa.broker.port import Binding, Message, Overflow, Publication, Queue, Settlement
from canoa.errors import BrokerRefusedMessage, BrokerUnreachable, Unroutable

if TYPE_CHECKING:
    from tests.contract.broker.conftest import NewBroker

    from canoa.broker.port import Broker, HeaderValue, PublishOutcome


async def test_a_published_message_is_in_the_queue(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))

    await broker.publish(letter("q"))

    assert (await broker.depth("q")).messages == 1


async def test_messages_cross_from_one_broker_object_to_another(new_broker: NewBroker) -> None:
    sender, receiver = await new_broker(), await new_broker()
    inbox = Inbox()
    await receiver.consume("q", inbox, prefetch=10, topology=[Queue(name="q")])

    await sender.publish(letter("q", b"hello"))

    delivery = await inbox.take_one()
    assert (delivery.message.body, delivery.exchange, delivery.key) == (b"hello", "", "q")
    assert not delivery.redelivered


async def test_a_delivery_names_the_exchange_and_the_key_it_was_sent_with(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Binding(exchange="amq.topic", queue="q", key="a.*"))

    await broker.publish(letter("a.b", exchange="amq.topic"))

    (delivery,) = await received(broker, "q", 1)
    assert (delivery.exchange, delivery.key) == ("amq.topic", "a.b")


# --- Outcomes -------------------------------------------------------------------------------------


async def test_a_mandatory_message_without_a_queue_is_unroutable(broker: Broker) -> None:
    with pytest.raises(Unroutable):
        await broker.publish(letter("nobody"))


async def test_a_message_that_is_not_mandatory_may_go_nowhere(broker: Broker) -> None:
    await broker.publish(letter("nobody", mandatory=False))


async def test_a_missing_exchange_is_unroutable_and_publishing_goes_on(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))

    with pytest.raises(Unroutable):
        await broker.publish(letter("k", exchange="missing"))

    await broker.publish(letter("q", b"next"))
    assert await received_bodies(broker, "q", 1) == [b"next"]


async def test_a_mandatory_message_needs_an_id(broker: Broker) -> None:
    with pytest.raises(ValueError, match="message_id"):
        await broker.publish(Publication(message=Message(body=b""), key="q"))


async def test_a_closed_broker_is_unreachable(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    posted: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    await broker.aclose()

    with pytest.raises(BrokerUnreachable):
        await broker.publish(letter("q"))
    assert [type(outcome) for outcome in await broker.publish_many([letter("q")])] == [BrokerUnreachable]
    broker.post(letter("q"), posted.set_result)
    assert isinstance(await posted, BrokerUnreachable)


async def test_a_closed_broker_declares_and_consumes_nothing(broker: Broker) -> None:
    await broker.aclose()

    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(BrokerUnreachable):
            await broker.declare(Queue(name="q"))
        with pytest.raises(BrokerUnreachable):
            await broker.depth("q")
        with pytest.raises(BrokerUnreachable):
            await broker.consume("q", Inbox(), prefetch=1)


async def test_closing_twice_is_allowed(broker: Broker) -> None:
    await broker.aclose()
    await broker.aclose()


async def test_a_full_queue_that_rejects_says_so_and_takes_more_once_there_is_room(broker: Broker) -> None:
    await broker.declare(Queue(name="q", max_length=2, overflow=Overflow.REJECT_PUBLISH))
    await broker.publish_many(letters("q", b"1", b"2"))

    with pytest.raises(BrokerRefusedMessage):
        await broker.publish(letter("q", b"3"))

    assert await received_bodies(broker, "q", 2) == [b"1", b"2"]
    await broker.publish(letter("q", b"4"))
    assert await received_bodies(broker, "q", 1) == [b"4"]


async def test_each_of_many_has_its_own_outcome_in_order(broker: Broker) -> None:
    await broker.declare(Queue(name="q"), Queue(name="full", max_length=1, overflow=Overflow.REJECT_PUBLISH))
    keys = ["q", "nobody", "full", "full", "q", "nobody", "q"]

    outcomes = await broker.publish_many([letter(key) for key in keys])

    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        Unroutable,
        type(None),
        BrokerRefusedMessage,
        type(None),
        Unroutable,
        type(None),
    ]


async def test_publishing_none_of_many_is_fine(broker: Broker) -> None:
    assert await broker.publish_many([]) == []


async def test_a_post_is_answered_once_and_never_from_inside(broker: Broker) -> None:
    await broker.declare(Queue(name="q"))
    kept: list[PublishOutcome] = []
    returned: list[PublishOutcome] = []

    broker.post(letter("q"), kept.append)
    broker.post(letter("nobody"), returned.append)

    assert kept == returned == []
    async with asyncio.timeout(WITHIN_S):
        while not (kept and returned):
            await broker.publish(letter("q"))
    await broker.publish(letter("q"))
    assert kept == [None]
    assert [type(outcome) for outcome in returned] == [Unroutable]


async def test_many_publishers_share_a_small_window_and_all_finish(new_broker: NewBroker) -> None:
    broker = await new_broker(window=3)
    await broker.declare(Queue(name="q"))

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as publishers:
        for body in numbered(100):
            publishers.create_task(broker.publish(letter("q", body)))
        publishers.create_task(broker.publish_many(letters("q", *numbered(100))))

    assert (await broker.depth("q")).messages == 200


async def test_a_publisher_that_gives_up_leaves_room_for_the_others(new_broker: NewBroker) -> None:
    broker = await new_broker(window=1)
    await broker.declare(Queue(name="q"))
    impatient = [asyncio.create_task(broker.publish(letter("q"))) for _ in range(10)]
    await asyncio.sleep(0)

    for task in impatient:
        task.cancel()
    await asyncio.gather(*impatient, return_exceptions=True)

    async with asyncio.timeout(WITHIN_S):
        await broker.publish(letter("q", b"patient"))


# --- What is sent is what arrives ---------------------------------------------------------------------


async def round_trip(broker: Broker, message: Message) -> Message:
    await broker.declare(Queue(name="q"))
    await broker.publish(Publication(message=message, key="q"))
    (delivery,) = await received(broker, "q", 1)
    return delivery.message


async def test_all_properties_arrive_as_sent(broker: Broker) -> None:
    message = Message(
        body=b"{}",
        content_type="application/json",
        content_encoding="zstd",
        headers={"a": 1},
        persistent=False,
        priority=7,
        correlation_id="c-1",
        reply_to="canoa.reply.1",
        expiration_s=60.5,
        message_id="m-1",
        timestamp_s=1_800_000_000,
        type="task.submitted",
        app_id="shop",
    )

    assert await round_trip(broker, message) == message


async def test_what_was_not_set_stays_unset(broker: Broker) -> None:
    message = Message(body=b"bare", message_id="m-1")

    assert await round_trip(broker, message) == message


@pytest.mark.parametrize("size", [0, 1, 131_072, 1_048_576])
async def test_bodies_of_any_size_arrive_whole(broker: Broker, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)

    assert (await round_trip(broker, Message(body=body, message_id="m-1"))).body == body


@pytest.mark.parametrize(
    "value",
    [
        "",
        "olá, canoa ⛵",
        "x" * 10_000,
        b"",
        b"\x00\xff\xfe not text",
        b"text",
        0,
        -1,
        2**31,
        2**63 - 1,
        -(2**63),
        0.1,
        -1e300,
        True,
        False,
        None,
        [],
        [1, "two", 3.0, None, True, b"\xff", [4, [5]]],
        {},
        {"a": {"b": {"c": [{"d": 1}]}}, "n": None, "é": "ü"},
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:16]}",
)
async def test_header_values_arrive_as_sent(broker: Broker, value: HeaderValue) -> None:
    received_headers = (await round_trip(broker, Message(body=b"", message_id="m-1", headers={"h": value}))).headers

    assert repr(received_headers) == repr({"h": value})  # 1, 1.0 and True are equal, but not the same


async def test_a_message_can_be_sent_on_as_it_was_received(broker: Broker) -> None:
    await broker.declare(Queue(name="a"), Queue(name="b"))
    await broker.publish(letter("a", b"body", headers={"n": 1, "l": [1, 2]}))
    (first,) = await received(broker, "a", 1)

    await broker.publish(Publication(message=first.message, key="b"))

    (second,) = await received(broker, "b", 1)
    assert second.message == first.message


async def test_order_holds_per_queue(new_broker: NewBroker) -> None:
    sender, receiver = await new_broker(), await new_broker()
    inbox = Inbox(Settlement.ACK)
    await receiver.consume("q", inbox, prefetch=20, topology=[Queue(name="q")])
    bodies = numbered(1000)

    for start in range(0, 500, 100):
        await sender.publish_many(letters("q", *bodies[start : start + 100]))
    answered: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    for body in bodies[500:-1]:
        sender.post(letter("q", body), lambda outcome: None)
    sender.post(letter("q", bodies[-1]), answered.set_result)

    assert await inbox.take_bodies(1000) == bodies
    assert await answered is None
