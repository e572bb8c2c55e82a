"""A crowd of bare nodes on one connection: each registers by the published wire, and again whenever a manager says so.

`python -m benchmarks.manager.swarm <count>` goes on until it is killed. Each node has its own queue behind the headers
exchange, like any; nobody sends them work.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING

from benchmarks import bare, environment
from canoa.broker import topology

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARD = "bench.swarm.heartbeats"
LAYERS = ("EDGE", "FOG", "CLOUD")
ACTIONS_EACH = 3
KINDS = 60
"""Of actions there are so many in all."""


def node_id(number: int) -> str:
    return f"swarm-{number}"


def registration(number: int, *, is_forced: bool, endpoint: str = "") -> bytes:
    actions = [f"urn:sapparchi:Action:swarm.action{(number + nth) % KINDS}" for nth in range(ACTIONS_EACH)]
    return json.dumps(
        {
            "nodeId": node_id(number),
            "endpoint": endpoint or f"http://127.1.{number // 250}.{number % 250}:8000",
            "layer": LAYERS[number % 3],
            "type": "bench",
            "actions": actions,
            "forceRegister": is_forced,
        }
    ).encode()


def main(count: int) -> None:
    link = bare.Link(environment.broker_url())
    _declare(link, count)
    _register(link, count, is_forced=False)
    for heartbeat in _heartbeats(link):
        if heartbeat["forceRegister"]:
            _register(link, count, is_forced=True)


def _declare(link: bare.Link, count: int) -> None:
    link.declare_exchange(topology.NODE_UNICAST, "headers")
    link.declare_exchange(topology.MANAGER_AVAILABLE, "fanout")
    for number in range(count):
        queue = topology.node_queue_name(node_id(number))
        link.declare(queue)
        link.bind(queue, topology.NODE_UNICAST, headers={"x-match": "all", "nodeId": node_id(number)})
    link.declare(HEARD)
    link.bind(HEARD, topology.MANAGER_AVAILABLE)


def _register(link: bare.Link, count: int, *, is_forced: bool) -> None:
    for number in range(count):
        body = registration(number, is_forced=is_forced)
        link.socket.sendall(bare.publication(topology.AMQ_TOPIC, topology.NODES_REGISTER, body))


def _heartbeats(link: bare.Link) -> Iterator[dict[str, bool]]:
    """Each is a method frame, a header and a body; nothing else comes on this link."""
    link.ask(bare.method(1, 60, 20, b"\0\0" + bare.short(HEARD) + bare.short("swarm") + b"\x02" + bare.long(b"")))
    while True:
        link.read()
        size = struct.unpack_from(">Q", link.read(), 4)[0]
        body = b""
        while len(body) < size:
            body += link.read()
        yield json.loads(body)


if __name__ == "__main__":
    main(int(sys.argv[1]))
