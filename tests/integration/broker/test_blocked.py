"""A broker under an alarm takes no messages: publishers hear so in time, consumers go on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter, letters, numbered
from tests.integration.broker.world import QUICK, eventually, insist

from canoa.broker.port import Settlement
from canoa.errors import BrokerBlocked, BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import RabbitNode

PUBLISH_TIMEOUT_S = 1.0
BLOCKED_WITHIN_S = 15.0
SLACK_S = 1.0  # what is overdue is looked for twice a second

BLOCKED = msgspec.structs.replace(QUICK, publish_timeout_s=PUBLISH_TIMEOUT_S, window=3)


@pytest.fixture
async def set_alarm(rabbit_node: RabbitNode) -> AsyncIterator[Callable[[bool], Awaitable[None]]]:
    async def set_alarm(on: bool) -> None:
        await asyncio.to_thread(rabbit_node.set_memory_alarm, on)

    yield set_alarm
    await set_alarm(False)


async def become_blocked(broker: RabbitBroker) -> None:
    """A broker says that it blocks only to those who publish, and the first to do so cannot know. An alarm takes a
    moment to reach every link, so one message may still pass before it."""
    async with asyncio.timeout(BLOCKED_WITHIN_S):
        while not broker.is_blocked:  # a link tells by its state, not by an event
            broker.post(letter("q", b"first"), lambda _: None)
            await asyncio.sleep(0.2)


async def test_an_alarm_blocks_publishers_and_nobody_else_until_it_ends(
    set_alarm: Callable[[bool], Awaitable[None]], new_broker: NewBroker, control: RabbitBroker, rabbit_url: str
) -> None:
    broker = await new_broker(rabbit_url, BLOCKED)
    await control.publish_many(letters("q", *numbered(3)))
    await set_alarm(True)
    await become_blocked(broker)

    with pytest.raises(BrokerBlocked, match="memory"):
        await broker.publish(letter("q", b"second"))

    inbox = Inbox(Settlement.ACK)
    await broker.consume("q", inbox, prefetch=1)
    assert await inbox.take_bodies(3) == numbered(3)

    await set_alarm(False)
    await insist(broker, letter("q", b"third"))
    await eventually(lambda: b"third" in inbox.bodies)
    assert not broker.is_blocked
    assert b"second" not in inbox.bodies  # it was reported as never sent


async def test_whoever_waits_for_room_behind_blocked_messages_hears_as_soon_as_they_do(
    set_alarm: Callable[[bool], Awaitable[None]], new_broker: NewBroker, control: RabbitBroker, rabbit_url: str
) -> None:
    broker = await new_broker(rabbit_url, BLOCKED)
    await set_alarm(True)
    await become_blocked(broker)

    started = time.monotonic()
    one_by_one = asyncio.gather(*(broker.publish(letter("q")) for _ in range(20)), return_exceptions=True)
    as_one = asyncio.create_task(broker.publish_many(letters("q", *numbered(20))))
    outcomes = [*await one_by_one, *await as_one]

    assert [type(outcome) for outcome in outcomes] == [BrokerBlocked] * 40
    assert time.monotonic() - started < PUBLISH_TIMEOUT_S + SLACK_S


async def test_a_blocked_broker_can_be_left_at_once(
    set_alarm: Callable[[bool], Awaitable[None]], new_broker: NewBroker, control: RabbitBroker, rabbit_url: str
) -> None:
    broker = await new_broker(rabbit_url, QUICK)
    await set_alarm(True)
    await become_blocked(broker)
    publishing = asyncio.gather(*(broker.publish(letter("q")) for _ in range(5)), return_exceptions=True)
    await asyncio.sleep(0)

    started = time.monotonic()
    await broker.aclose()

    assert time.monotonic() - started < 3.0
    assert {type(outcome) for outcome in await publishing} == {BrokerUnreachable}
