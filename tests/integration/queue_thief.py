"""Another program that takes all that comes to a queue: `python -m tests.integration.queue_thief URL QUEUE`.

The broker gives to the consumer of the highest priority as long as it takes. So whoever else listens is connected, and
deaf. On pika, since Canoa has no such consumers.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pika  # type: ignore[import-untyped]

from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TAKES = "takes"


@asynccontextmanager
async def stealing(url: str, node_id: str) -> AsyncIterator[None]:
    """From a node's queue, inside the block."""
    command = [sys.executable, "-m", "tests.integration.queue_thief", url, topology.node_queue_name(node_id)]
    thief = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert thief.stdout is not None
        async with asyncio.timeout(20):
            assert await thief.stdout.readline() == f"{TAKES}\n".encode()
        yield
    finally:
        thief.kill()
        await thief.wait()


async def unbound(url: str, node_id: str) -> None:
    """Nothing that is sent to the node reaches its queue any more."""
    bound = {"x-match": "all", "nodeId": node_id}
    await asyncio.to_thread(_unbind, url, topology.node_queue_name(node_id), topology.NODE_UNICAST, bound)


async def without_heartbeats(url: str, node_id: str, instance: str) -> None:
    """The node hears that it was registered, and no heartbeat any more."""
    queue = topology.heartbeat_queue_name(node_id, instance)
    await asyncio.to_thread(_unbind, url, queue, topology.MANAGER_AVAILABLE, {})


def _unbind(url: str, queue: str, exchange: str, bound: dict[str, str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_unbind(queue, exchange, "", bound)
    connection.close()


def _steal(url: str, queue: str) -> None:
    channel: Any = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_consume(queue, lambda *_: None, auto_ack=True, arguments={"x-priority": 10})
    print(TAKES, flush=True)
    channel.start_consuming()


if __name__ == "__main__":
    _steal(*sys.argv[1:])
