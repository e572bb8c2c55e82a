"""Final results that nobody takes do not fill the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import received_bodies

from canoa.broker import topology
from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.port import Queue
from canoa.broker.rabbitmq import RabbitBroker
from canoa.execution.outcome import Outcome
from canoa.manager.trimming import Trimmer
from canoa.vocabulary import TaskId
from canoa.wire.routed import final_result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.broker.port import Broker


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    memory = request.param == "memory"
    broker: Broker = MemoryBroker(MemoryHub()) if memory else RabbitBroker(request.getfixturevalue("rabbit_url"))
    await broker.open()
    await broker.declare(*topology.manager())
    yield broker
    await broker.aclose()


async def publish_ends(broker: Broker, count: int) -> None:
    for number in range(count):
        await broker.publish(final_result(TaskId(f"task-{number}"), b"%d" % number, Outcome.OK))


async def test_the_oldest_of_too_many_final_results_are_dropped(broker: Broker) -> None:
    await publish_ends(broker, 30)

    assert await Trimmer(broker, is_leading=lambda: True, most=10).trim() == 20

    assert (await broker.depth(topology.FINAL_RESULTS)).messages == 10
    left = await received_bodies(broker, topology.FINAL_RESULTS, 10)
    assert sorted(map(int, left)) == list(range(20, 30))


async def test_as_many_as_may_wait_are_left_alone(broker: Broker) -> None:
    await publish_ends(broker, 10)

    assert await Trimmer(broker, is_leading=lambda: True, most=10).trim() == 0


async def test_a_client_may_declare_the_queue_of_final_results_as_published(broker: Broker) -> None:
    await broker.declare(Queue(name=topology.FINAL_RESULTS))
