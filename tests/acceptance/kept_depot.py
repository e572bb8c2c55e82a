"""A depot whose tasks are kept by recorder processes, which a test kills and cuts off; and what must hold then."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import urllib.error
import urllib.request
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.acceptance.shell import CANOA, ROOT, Process, Shell

from canoa import Canoa
from canoa.broker import topology
from canoa.store.opening import new_store
from canoa.store.port import State, TaskFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.client.handle import Handle
    from canoa.store.port import Store
    from canoa.testing import RabbitNode

WITHIN_S = 60.0
TOKEN = "a-token-for-the-depot"
EVERYTHING = 100_000
KEPT = ("canoa.mark.", topology.FINAL_RESULTS)
PASSING = ("canoa.events.", "canoa.cancel.", "canoa.catalogue.", "canoa.canary.", "canoa.heartbeat.")


class Rabbit(NamedTuple):
    """A virtual host of a test's own, and its node."""

    node: RabbitNode
    url: str

    async def wait_empty(self) -> None:
        """Until nothing waits in any queue and nobody holds anything."""
        async with asyncio.timeout(WITHIN_S):
            while await self.waiting():
                pass

    async def waiting(self) -> dict[str, int]:
        """How many messages, by queue. Apart from what is kept by purpose (a caller's mark, final results for whoever
        listens) or goes by itself (what was told to those that were killed)."""
        return await asyncio.to_thread(self._messages)

    def _messages(self) -> dict[str, int]:
        vhost = self.url.rpartition("/")[2]
        listed = self.node.ctl("list_queues", "--no-table-headers", "-p", vhost, "name", "messages")
        queues = dict(line.split("\t") for line in listed.splitlines())
        return {
            name: int(count) for name, count in queues.items() if count != "0" and not name.startswith(KEPT + PASSING)
        }


class KeptDepot:
    """A caller and a worker of this process, recorders of their own. `runs`: how often each number was run."""

    def __init__(self, folder: Path, rabbit: Rabbit, store_url: str | None = None) -> None:
        self.app = Canoa("depot", broker=rabbit.url)
        self.store_url = store_url or f"sqlite:///{folder}/canoa.db"
        self.runs: Counter[int] = Counter()
        self.handles: dict[int, Handle[int]] = {}
        self._shell = Shell(folder, folder=folder, env={"CANOA_BROKER": rabbit.url, "CANOA_STORE": self.store_url})
        self._shell.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
        self._rabbit = rabbit
        self._working = AsyncExitStack()
        self._numbers = itertools.count()
        self._double = self.app.action(timeout=30)(self.double)

    async def double(self, number: int) -> int:
        self.runs[number] += 1
        return 2 * number

    async def __aenter__(self) -> Self:
        await self._working.enter_async_context(self.app.worker(drain_s=5))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.aclose()
        await self._working.aclose()
        self._shell.close()

    # --- Recorders ------------------------------------------------------------------------------------

    async def recorder(self, *args: str, **env: str) -> Process:
        """One that is ready."""
        return await self.ready(self.start_recorder(*args, **env))

    def start_recorder(self, *args: str, **env: str) -> Process:
        return self._shell.start(str(CANOA), "recorder", "--json", *args, **env)

    async def doomed_recorder(self, moment: str) -> Process:
        """One that is ready, and dies by itself."""
        program = [sys.executable, "-m", "tests.acceptance.doomed_recorder", moment, "--json"]
        return await self.ready(self._shell.start(*program))

    async def ready(self, recorder: Process) -> Process:
        await asyncio.to_thread(recorder.wait_logged, "recorder_ready")
        return recorder

    # --- Tasks ----------------------------------------------------------------------------------------

    async def submit(self, count: int) -> list[Handle[int]]:
        """That many more, at once; each one is accepted."""
        numbers = [next(self._numbers) for _ in range(count)]
        handles = await self._double.using(result="keep").submit_many(numbers)
        self.handles |= dict(zip(numbers, handles, strict=True))
        return handles

    @asynccontextmanager
    async def load(self, batch: int = 5, pause_s: float = 0.05) -> AsyncIterator[None]:
        """Tasks come one batch after the other while the block runs."""
        is_over = asyncio.Event()

        async def submit_on() -> None:
            while not is_over.is_set():
                await self.submit(batch)
                await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as group:
            group.create_task(submit_on(), name="depot.load")
            try:
                yield
            finally:
                is_over.set()

    async def some_results(self) -> None:
        """The load is under way: one more went all the way."""
        [handle] = await self.submit(1)
        await handle.result(WITHIN_S)

    # --- What must hold -------------------------------------------------------------------------------

    async def every_handle_has_its_result(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            answers = {number: await handle.result() for number, handle in self.handles.items()}
        assert answers == {number: 2 * number for number in self.handles}

    async def everything_is_recorded_once_and_nothing_is_left(self) -> None:
        await self.every_handle_has_its_result()
        async with self._opened() as store:
            rows = await store.tasks(TaskFilter(), limit=EVERYTHING)
        assert {row.id for row in rows} == {handle.id for handle in self.handles.values()}
        assert {(row.state, row.outcome) for row in rows} == {(State.ENDED, "ok")}
        await self._rabbit.wait_empty()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        store = new_store(self.store_url)
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()


async def asked(recorder: Process, path: str, order: object = None) -> tuple[int, str]:
    """What its API answers: status and body."""
    (ready,) = [event for event in recorder.events() if event["event"] == "api_ready"]
    return await asyncio.to_thread(http_answer, f"{ready['url']}{path}", order)


def http_answer(url: str, order: object) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = None if order is None else json.dumps(order).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, text
    return float(found[1])
