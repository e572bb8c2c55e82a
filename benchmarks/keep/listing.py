"""`list_1M`: how long a page of 50 takes in a store of a million tasks, asked for through the API of `canoa up`.

The store is filled through `apply`, in batches. Most tasks have ended; those that wait are due in ten years, so that
nobody runs them. The figure is that of the slowest kind of page, of each the median of many pages at different places.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from benchmarks.keep.http import Connection
from benchmarks.keep.upped import Served, up
from benchmarks.processes import ContestantFailed
from benchmarks.record import say
from canoa.broker.port import Message
from canoa.execution.outcome import Outcome
from canoa.recorder import showing
from canoa.store.opening import new_store
from canoa.store.port import Accept, End, NewTask
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.store.port import Change

ACTIONS: Final = 20
WAITING_EVERY: Final = 100
FAILED_EVERY: Final = 33
BATCH: Final = 1_000
PAGE: Final = 50
PAGES: Final = 20
TEN_YEARS_MS: Final = 10 * 365 * 86_400_000


# --- The tasks --------------------------------------------------------------------------------------------------


class Numbered:
    """`count` tasks, one a millisecond, the last one a day ago."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._first_ms = int(time.time() * 1000) - 86_400_000 - count

    def at_ms(self, number: int) -> int:
        return self._first_ms + number

    def changes(self, number: int) -> Iterator[Change]:
        task = self._task(number)
        yield Accept(task=task)
        if number % WAITING_EVERY:
            yield self._end(task, Outcome.OK if number % FAILED_EVERY else Outcome.FAILED)

    def _task(self, number: int) -> NewTask:
        at_ms = self.at_ms(number)
        task_id, action = TaskId(f"{at_ms:012x}7{number:019x}"), ActionName(f"bench.action{number % ACTIONS}")
        message = Message(body=b'{"path":"a.png","width":80}', message_id=task_id, type=action)
        due_ms = None if number % WAITING_EVERY else at_ms + TEN_YEARS_MS
        return NewTask(id=task_id, action=action, message=message, submitted_ms=at_ms, due_ms=due_ms)

    def _end(self, task: NewTask, outcome: Outcome) -> End:
        what = result.failure("no such file", error_type="FileNotFoundError")
        is_ok = outcome is Outcome.OK
        told = (
            result.success_message(task.id, b'"a-80.png"', "application/json", None)
            if is_ok
            else result.failure_message(task.id, outcome, what)
        )
        ended_ms = task.submitted_ms + 5
        error = None if is_ok else what.message
        return End(task_id=task.id, action=task.action, outcome=outcome, result=told, ended_ms=ended_ms, error=error)


async def _fill(path: Path, tasks: Numbered) -> None:
    store = new_store(f"sqlite:///{path}")
    await store.open()
    for begin in range(0, tasks.count, BATCH):
        batch = range(begin, min(begin + BATCH, tasks.count))
        await store.apply(list(itertools.chain.from_iterable(map(tasks.changes, batch))))
    await store.aclose()


# --- The pages --------------------------------------------------------------------------------------------------


def slowest_page_ms(count: int) -> float:
    tasks = Numbered(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "canoa.db")
        began = time.monotonic()
        asyncio.run(_fill(path, tasks))
        say(f"filled a store with {count:,} tasks in {time.monotonic() - began:.0f} s")
        with up(path) as served:
            medians = asyncio.run(_medians(served, tasks))
    for kind, took_ms in medians.items():
        say(f"  a page, {kind:<22} {took_ms:>8.2f} ms")
    return max(medians.values())


KINDS: Final[dict[str, dict[str, str]]] = {
    "unfiltered": {},
    "by action": {"action": "bench.action7"},
    "waiting": {"state": "waiting"},
    "ended": {"state": "ended"},
    "failed": {"outcome": "failed"},
    "waiting, by action": {"action": "bench.action0", "state": "waiting"},
    "ended, by action": {"action": "bench.action7", "state": "ended"},
}


async def _medians(served: Served, tasks: Numbered) -> dict[str, float]:
    connection = await Connection.open(served)
    found = {kind: await _median(connection, wanted, tasks) for kind, wanted in KINDS.items()}
    connection.close()
    return found


async def _median(connection: Connection, wanted: dict[str, str], tasks: Numbered) -> float:
    """Of the first page, and of pages behind cursors all over the store."""
    took_ms = []
    for nth in range(PAGES):
        at_ms = tasks.at_ms(tasks.count - nth * (tasks.count // PAGES))
        place = {"cursor": showing.cursor(at_ms, "f" * 32)} if nth else {}
        began = time.perf_counter()
        page = await connection.ask("GET", f"/api/v1/tasks?{urlencode({**wanted, **place, 'limit': PAGE})}")
        took_ms.append((time.perf_counter() - began) * 1000)
        _check(json.loads(page)["tasks"], wanted)
    return statistics.median(took_ms)


def _check(found: list[dict[str, Any]], wanted: dict[str, str]) -> None:
    is_right = all(task[name] == value for task in found for name, value in wanted.items())
    if len(found) != PAGE or not is_right:
        raise ContestantFailed(f"asked for {PAGE} tasks with {wanted}, got {len(found)}: {found[:1]}")
