"""However often a link breaks and whatever was given up: as many tasks, sockets, connections and channels as before."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter
from tests.integration.broker.world import QUICK, eventually, hears, until_consumers

from canoa.errors import BrokerUnreachable, QueueMissing

if TYPE_CHECKING:
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import RabbitNode, TcpProxy

CYCLES = 30


def task_count() -> int:
    return len(asyncio.all_tasks())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a listing, not paths


class Seen:
    """What the broker itself counts in the test's virtual host."""

    def __init__(self, node: RabbitNode, url: str) -> None:
        self._node = node
        self._vhost = url.rpartition("/")[2]

    async def connections(self) -> int:
        return await self._count("list_connections")

    async def channels(self) -> int:
        return await self._count("list_channels")

    async def _count(self, what: str) -> int:
        listed = await asyncio.to_thread(self._node.ctl, what, "vhost", "--no-table-headers")
        return listed.split().count(self._vhost)


@pytest.fixture
def seen(rabbit_node: RabbitNode, rabbit_url: str) -> Seen:
    return Seen(rabbit_node, rabbit_url)


async def test_thirty_cuts_leave_nothing_behind(
    broker: RabbitBroker, inbox: Inbox, control: RabbitBroker, proxy: TcpProxy, seen: Seen
) -> None:
    await broker.publish(letter("q"))
    tasks, files, connections, channels = task_count(), open_files(), await seen.connections(), await seen.channels()

    for cycle in range(CYCLES):
        proxy.cut()
        await eventually(lambda: proxy.link_count == 0)
        proxy.restore()
        if cycle % 3:  # otherwise cut again in the middle of the greeting
            await eventually(lambda: proxy.link_count == 2)
        if cycle % 3 == 2:
            await hears(inbox, control)

    await hears(inbox, control)
    await broker.publish(letter("q"))
    await eventually(lambda: task_count() == tasks)
    await eventually(lambda: open_files() == files)
    assert await seen.connections() == connections
    assert await seen.channels() == channels
    await until_consumers(control, 1)


async def test_a_closed_broker_leaves_nothing_behind(
    new_broker: NewBroker, control: RabbitBroker, seen: Seen, rabbit_url: str
) -> None:
    tasks, files, connections = task_count(), open_files(), await seen.connections()
    broker = await new_broker(rabbit_url)
    await broker.consume("q", Inbox(), prefetch=1)
    await broker.publish(letter("q"))

    await broker.aclose()
    await broker.aclose()

    await eventually(lambda: (task_count(), open_files()) == (tasks, files))
    assert await seen.connections() == connections


async def test_requests_that_were_answered_refused_or_given_up_leave_no_channel_behind(
    new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, seen: Seen, rabbit_url: str
) -> None:
    patient = msgspec.structs.replace(QUICK, publish_timeout_s=1, heartbeat_s=30)  # a slow link is no dead one
    broker = await new_broker(proxy.via(rabbit_url), patient)
    channels = await seen.channels()

    await asyncio.gather(*(broker.depth("q") for _ in range(20)))
    for _ in range(10):
        with pytest.raises(QueueMissing):
            await broker.depth("nowhere")
        with pytest.raises(ValueError, match="255"):
            await broker.depth("too long" * 40)
    proxy.slow(delay_s=1)
    for _ in range(3):
        with pytest.raises(BrokerUnreachable, match="within 1 s"):
            await broker.depth("q")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await broker.consume("q", Inbox(), prefetch=1)
    proxy.resume()

    await broker.depth("q")
    assert await seen.channels() == channels
    await until_consumers(control, 0)
