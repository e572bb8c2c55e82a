"""A caller of the HTTP API, in a process of its own; prints the seconds that `count` calls took.

`python -m benchmarks.keep.http_calls <port> <token> <count>`: a call is two requests, submit and then the result,
waiting for it. As many connections are kept alive as there are calls at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from benchmarks.keep.http import Connection
from benchmarks.keep.upped import Served

AT_ONCE = 50
WARM_UP = 500
BODY = b'{"action": "bench.resize", "arguments": {"path": "a.png", "width": 80}}'


async def measured(served: Served, count: int) -> float:
    connections = [await Connection.open(served) for _ in range(AT_ONCE)]
    await _call_all(connections, WARM_UP)
    began = time.perf_counter()
    await _call_all(connections, count)
    return time.perf_counter() - began


async def _call_all(connections: list[Connection], count: int) -> None:
    await asyncio.gather(*(_call(each, count // AT_ONCE) for each in connections))


async def _call(connection: Connection, count: int) -> None:
    for _ in range(count):
        submitted = json.loads(await connection.ask("POST", "/api/v1/tasks", body=BODY, status=b"201"))
        await connection.ask("GET", f"/api/v1/tasks/{submitted['id']}/result?wait=30")


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measured(Served(int(sys.argv[1]), sys.argv[2]), int(sys.argv[3])))))
