"""A plant of manager and worker processes, which a test kills and cuts off; its caller is the test itself."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec
from tests.acceptance.finals import Finals
from tests.acceptance.kept_depot import TOKEN, asked
from tests.acceptance.shell import CANOA, ROOT, Process, Shell
from tests.sql import first_value

from canoa import Canoa
from canoa.action import Options
from canoa.store.opening import new_store
from canoa.store.port import State, TaskFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence, Set
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.client.handle import Handle
    from canoa.plan import Plan
    from canoa.store.routed_port import NodeRow, StepRow

WITHIN_S = 60.0

EVERYTHING = 100_000
HASTY = [sys.executable, "-m", "tests.acceptance.hasty"]
UNSENT = ("owed", "outbox", "slips")
APP = "tests.acceptance.routed_actions:app"


class Plant:
    """Managers, nodes, and numbers to double, or to braid. Every process logs as JSON."""

    actions = APP

    def __init__(self, folder: Path, rabbit: Rabbit, store_url: str | None = None) -> None:
        self.app = Canoa("plant", broker=rabbit.url)
        self.store_url = store_url or f"sqlite:///{folder}/canoa.db"
        self.handles: dict[int, Handle[Any]] = {}
        self.wanted: dict[int, object] = {}
        self.finals: Finals  # once entered
        self.shell = Shell(folder, folder=folder, env={"CANOA_BROKER": rabbit.url})
        self.shell.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "CANOA_API_TOKEN": TOKEN}
        self._rabbit = rabbit
        self._numbers = itertools.count()
        self._braid = _braid(self.app)

    async def __aenter__(self) -> Self:
        self.finals = Finals(self.app.new_broker("finals"))
        await self.finals.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.finals.aclose()
        await self.app.aclose()
        self.shell.close()

    # --- Processes ------------------------------------------------------------------------------------

    async def manager(self, *args: str, **env: str) -> Process:
        """One that is ready."""
        return await self.ready(self.start_manager(*args, **env))

    async def hasty_manager(self, **env: str) -> Process:
        """One that finds out sooner who can receive work."""
        return await self.ready(self.start_manager(program=HASTY, **env))

    def start_manager(self, *args: str, program: Sequence[str] = (str(CANOA),), **env: str) -> Process:
        command = ["manager", "--json", "--store", self.store_url, "--port", "0"]
        return self.shell.start(*program, *command, *args, **env)

    async def wrong_clock_manager(self, clock: Path) -> Process:
        """One whose wall clock is wrong by what the file says, in seconds."""
        return await self.ready(self.start_manager(program=_under(clock)))

    async def wrong_clock_node(self, name: str, clock: Path) -> Process:
        return await self.node(name, program=_under(clock))

    async def ready(self, manager: Process) -> Process:
        await asyncio.to_thread(manager.wait_logged, "manager_ready")
        return manager

    async def node(self, name: str, *args: str, program: Sequence[str] = (str(CANOA),), **env: str) -> Process:
        """A worker that managers know."""
        worker = self.start_node(name, *args, program=program, **env)
        await asyncio.to_thread(worker.wait_logged, "node_registered")
        return worker

    def start_node(self, name: str, *args: str, program: Sequence[str] = (str(CANOA),), **env: str) -> Process:
        command = ["worker", self.actions, "--json", "--node-id", name, "--drain", "2"]
        return self.shell.start(*program, *command, *args, **env)

    # --- Tasks ----------------------------------------------------------------------------------------

    async def submit(self, count: int, *, seconds: float = 0.0) -> list[Handle[Any]]:
        """That many more numbers, at once; each one is accepted."""
        return await self._submitted(
            {number: 2 * number for number in self._next(count)},
            lambda number: self.begin("double", number=number, seconds=seconds),
        )

    async def submit_braids(self, count: int) -> list[Handle[Any]]:
        """That many more numbers through a plan that forks and joins, and of which one step fails at first."""
        return await self._submitted(
            {number: [2 * number + more for more in (1, 2, 3)] for number in self._next(count)},
            lambda number: self._braid.submit(number=number),
        )

    def _next(self, count: int) -> Iterator[int]:
        return itertools.islice(self._numbers, count)

    async def _submitted(
        self, wanted: Mapping[int, object], submit: Callable[[int], Awaitable[Handle[Any]]]
    ) -> list[Handle[Any]]:
        handles = await asyncio.gather(*map(submit, wanted))
        self.handles |= dict(zip(wanted, handles, strict=True))
        self.wanted |= wanted
        return handles

    async def begin(
        self, action: str, *, timeout_s: float | None = None, queue_timeout_s: float | None = None, **arguments: Any
    ) -> Handle[Any]:
        """A routed task of one action. `timeout_s`: of one attempt; None: as the node says."""
        options = Options(dispatch="routed", timeout=timeout_s, queue_timeout=queue_timeout_s)
        return await self.app.submit_raw(f"plant.{action}", msgspec.json.encode(arguments), options=options)

    @asynccontextmanager
    async def load(self, batch: int = 5, pause_s: float = 0.05, *, has_braids: bool = True) -> AsyncIterator[None]:
        """Tasks come one batch after the other while the block runs, and with each a few braids."""
        is_over = asyncio.Event()

        async def submit_on() -> None:
            while not is_over.is_set():
                await self.submit(batch)
                if has_braids:
                    await self.submit_braids(-(-batch // 4))
                await asyncio.sleep(pause_s)

        async with asyncio.TaskGroup() as group:
            group.create_task(submit_on(), name="plant.load")
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
        assert answers == self.wanted

    async def everything_is_recorded_once_and_nothing_is_left(self) -> None:
        await self.every_handle_has_its_result()
        async with self.opened() as store:
            rows = await store.tasks(TaskFilter(), limit=EVERYTHING)
        numbered = {handle.id for handle in self.handles.values()}
        assert numbered <= {row.id for row in rows}
        assert {(row.state, row.outcome) for row in rows} == {(State.ENDED, "ok")}
        assert await self.left(WITHIN_S) == {}
        await self.every_task_has_one_end({row.id for row in rows})

    async def every_task_has_one_end(self, task_ids: Set[str]) -> None:
        """As everybody was told: perhaps more than once, but never in two ways."""
        async with asyncio.timeout(WITHIN_S):
            await self.finals.wait_for(task_ids)
        assert self.finals.contradictions == {}
        print(f"{len(task_ids)} tasks, {self.finals.repeated} final results said again")

    async def left(self, within_s: float) -> dict[str, int]:
        """What is not empty, though given some time: queues, and tables of what is still to be sent. A manager must
        live: it sends what those that were killed owe, once their time for it is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + within_s
        while (left := await self._unsent() | await self._rabbit.waiting()) and loop.time() < ends_at:
            pass  # the broker takes its time to say it
        return left

    async def _unsent(self) -> dict[str, int]:
        found = {table: await first_value(self.store_url, f"SELECT count(*) FROM {table}") for table in UNSENT}
        return {f"table {table}": count for table, count in found.items() if isinstance(count, int) and count}

    async def nodes(self) -> dict[str, NodeRow]:
        async with self.opened() as store:
            return {row.node_id: row for row in await store.nodes()}

    async def steps(self, handle: Handle[Any]) -> list[StepRow]:
        async with self.opened() as store:
            return list(await store.steps(handle.id))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        store = new_store(self.store_url)
        await store.open()
        try:
            yield store
        finally:
            await store.aclose()


def _braid(app: Canoa) -> Plan:
    plan = app.plan("braid")
    start = plan.step("plant.double", number=plan.input["number"])
    plan.step(
        "plant.listed",
        first=plan.step("plant.add", number=start, more=1),
        second=plan.step("plant.stumble", number=start, more=2),
        third=plan.step("plant.add", number=start, more=3),
    )
    return plan


def _under(clock: Path) -> list[str]:
    return [sys.executable, "-m", "tests.acceptance.shifted_clock", str(clock)]


async def until_true(look: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not await look():  # noqa: ASYNC110  # other processes do it
            await asyncio.sleep(0.05)


async def counted(manager: Process, name: str) -> float:
    """The sum of one of its metrics over all labels."""
    _, text = await asked(manager, "/metrics")
    return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)))


async def has_counted(manager: Process, name: str, at_least: int) -> bool:
    return await counted(manager, name) >= at_least
