"""What is true of the memory broker alone: its hub's life, its manners towards the event loop, its timers.

What it shares with RabbitMQ is in `tests/contract/broker`.
"""

from __future__ import annotations

import asyncio

import pytest

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.memory_hub import TURN
from canoa.broker.port import Delivery, Message, Publication, PublishOutcome, Queue
from canoa.errors import QueueMissing, SettingError, Unroutable, WrongUse

WITHIN_S = 5.0


def letter(queue: str, *, expiration_s: float | None = None) -> Publication:
    return Publication(message=Message(body=b"", message_id="m-1", expiration_s=expiration_s), key=queue)


async def opened(hub: MemoryHub | None = None) -> MemoryBroker:
    broker = MemoryBroker(hub)
    await broker.open()
    return broker


async def test_brokers_without_a_common_hub_are_apart() -> None:
    one, other = await opened(), await opened()
    await one.declare(Queue(name="q"))

    with pytest.raises(Unroutable):
        await other.publish(letter("q"))


async def test_no_timer_is_left_once_all_brokers_are_closed() -> None:
    hub = MemoryHub()
    one, other = await opened(hub), await opened(hub)
    await one.declare(Queue(name="expiring", expires_s=60), Queue(name="own", exclusive=True, message_ttl_s=60))
    await other.declare(Queue(name="ttl", message_ttl_s=60), Queue(name="plain"))
    await one.publish_many([letter("own"), letter("ttl"), letter("plain", expiration_s=60)])
    assert hub.pending_timers == 4

    await one.aclose()
    assert hub.pending_timers == 3
    await other.aclose()

    assert hub.pending_timers == 0


def test_a_hub_keeps_its_queues_for_the_next_event_loop() -> None:
    hub = MemoryHub()

    async def leave_some() -> None:
        broker = await opened(hub)
        await broker.declare(Queue(name="q"), Queue(name="expiring", expires_s=0.01))
        await broker.publish_many([letter("q", expiration_s=0.01), letter("q")])
        await broker.aclose()

    async def find_the_rest() -> None:
        broker = await opened(hub)
        async with asyncio.timeout(WITHIN_S):
            while True:
                await asyncio.sleep(0.001)
                if hub.pending_timers == 0:
                    break
        assert (await broker.depth("q")).messages == 1
        with pytest.raises(QueueMissing):
            await broker.depth("expiring")
        await broker.aclose()

    asyncio.run(leave_some())
    asyncio.run(find_the_rest())


def test_a_hub_serves_one_event_loop_at_a_time() -> None:
    hub = MemoryHub()
    never_closed = asyncio.run(opened(hub))
    assert never_closed.hub is hub

    with pytest.raises(WrongUse, match="another event loop"):
        asyncio.run(opened(hub))


async def test_a_long_queue_is_drained_without_holding_up_the_loop() -> None:
    broker = await opened()
    await broker.declare(Queue(name="q"))
    await broker.publish_many([letter("q")] * (20 * TURN))
    drained = asyncio.Event()
    taken = 0

    def take(delivery: Delivery) -> None:
        nonlocal taken
        delivery.settle()
        taken += 1
        if taken == 20 * TURN:
            drained.set()

    await broker.consume("q", take, prefetch=10_000)
    turns = 0
    async with asyncio.timeout(WITHIN_S):
        while not drained.is_set():
            await asyncio.sleep(0)
            turns += 1

    assert turns >= 20


async def test_a_publisher_in_a_loop_lets_consumers_work() -> None:
    broker = await opened()
    await broker.declare(Queue(name="q"))
    taken: list[Delivery] = []
    await broker.consume("q", taken.append, prefetch=10)

    for _ in range(3):
        await broker.publish(letter("q"))

    assert len(taken) >= 2


async def test_an_outcome_callback_that_raises_silences_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broker = await opened()
    await broker.declare(Queue(name="q"))
    heard: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()

    def fail(outcome: PublishOutcome) -> None:
        raise RuntimeError("a bug of the caller")

    broker.post(letter("q"), fail)
    broker.post(letter("q"), heard.set_result)

    assert await heard is None
    assert [record.message for record in caplog.records] == ["on_outcome_failed"]


async def test_outcomes_are_heard_although_the_broker_closes_at_once() -> None:
    broker = await opened()
    await broker.declare(Queue(name="q"))
    heard: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()

    broker.post(letter("q"), heard.set_result)
    await broker.aclose()

    async with asyncio.timeout(WITHIN_S):
        assert await heard is None


async def test_what_was_never_handed_over_goes_back_unmarked() -> None:
    hub = MemoryHub()
    broker, other = await opened(hub), await opened(hub)
    await broker.declare(Queue(name="q"))
    early: list[Delivery] = []
    late: list[Delivery] = []
    consumer = await broker.consume("q", early.append, prefetch=10)
    broker.post(letter("q"), lambda outcome: None)

    await consumer.cancel()
    await other.consume("q", late.append, prefetch=10)
    await asyncio.sleep(0)

    assert early == []
    assert [delivery.redelivered for delivery in late] == [False]


@pytest.mark.parametrize("prefetch", [0, -1])
async def test_a_consumer_without_room_for_anything_is_refused(prefetch: int) -> None:
    broker = await opened()
    await broker.declare(Queue(name="q"))
    consumer = await broker.consume("q", lambda delivery: None, prefetch=1)

    with pytest.raises(SettingError, match="prefetch"):
        await broker.consume("q", lambda delivery: None, prefetch=prefetch)
    with pytest.raises(SettingError, match="prefetch"):
        await consumer.set_prefetch(prefetch)
