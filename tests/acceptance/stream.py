"""Tasks that come all the time, over a manager's HTTP API, which needs no broker; and by which way they went."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.acceptance.kept_depot import asked
from tests.acceptance.plant import WITHIN_S, until_true

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.acceptance.shell import Process

CALLERS = 4
ENOUGH = 200
"""Tasks that begin and end while a way is in use."""


class Stream:
    """Numbers to double, one after the other for each of its callers. `folder`: where nodes note what they run."""

    def __init__(self, manager: Process, folder: Path) -> None:
        self._manager = manager
        self._folder = folder
        self._numbers = itertools.count()
        self.task_ids: dict[int, str] = {}
        self.results: dict[int, Any] = {}

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """While the block runs; what was begun has ended afterwards."""
        is_over = asyncio.Event()

        async def call_on() -> None:
            while not is_over.is_set():
                await self.call()

        async with asyncio.TaskGroup() as group:
            for number in range(CALLERS):
                group.create_task(call_on(), name=f"stream.{number}")
            try:
                yield
            finally:
                is_over.set()

    async def call(self, *, seconds: float = 0.0) -> None:
        """One more, to its end."""
        number = await self.begin(seconds=seconds)
        await self.end(number)

    async def begin(self, *, seconds: float = 0.0) -> int:
        number = next(self._numbers)
        arguments = {"number": number, "folder": str(self._folder), "seconds": seconds}
        order = {"action": "plant.noted", "arguments": arguments, "dispatch": "routed"}
        status, said = await asked(self._manager, "/api/v1/tasks", order)
        assert status == 201, said
        self.task_ids[number] = json.loads(said)["id"]
        return number

    async def end(self, number: int) -> None:
        status, said = await asked(self._manager, f"/api/v1/tasks/{self.task_ids[number]}/result?wait=60")
        assert status == 200, said
        self.results[number] = json.loads(said)["result"]

    async def goes_by(self, way: str) -> None:
        """Return once that is the way in use, and a good many tasks went by it from begin to end."""
        await until_true(lambda: self._is_by(way))
        sent_bytes, ended = await self.sent_bytes(way), len(self.results)
        await until_true(lambda: self._went(way, sent_bytes, ended))

    async def _is_by(self, way: str) -> bool:
        return bool((await node_view(self._manager))["way"] == way)

    async def _went(self, way: str, sent_bytes: float, ended: int) -> bool:
        return len(self.results) >= ended + ENOUGH and await self.sent_bytes(way) > sent_bytes

    async def sent_bytes(self, way: str) -> float:
        """To nodes, in messages."""
        _, text = await asked(self._manager, "/metrics")
        counted = re.findall(r'^canoa_link_bytes_total{direction="out",layer="\w+",way="([^"]+)"} (\S+)$', text, re.M)
        return sum(float(count) for name, count in counted if name.partition("-")[0] == way)

    def every_task_ended_well(self) -> None:
        assert self.results == {number: 2 * number for number in self.task_ids}

    def every_task_ran_once(self) -> None:
        runs = Counter(map(int, (self._folder / "noted").read_text().split()))
        assert runs == dict.fromkeys(self.task_ids, 1), {number: count for number, count in runs.items() if count != 1}


async def node_view(manager: Process, name: str = "gw-1") -> dict[str, Any]:
    status, said = await asked(manager, f"/api/v1/nodes/{name}")
    assert status == 200, said
    return dict(json.loads(said))


async def shows(manager: Process, **facts: Any) -> bool:
    """Of the gateway, in `canoa nodes`."""
    seen = await node_view(manager)
    return facts.items() <= seen.items()


async def until_shown(manager: Process, *, within_s: float = WITHIN_S, **facts: Any) -> None:
    await until_true(lambda: shows(manager, **facts), within_s)
