"""A store's life: opened by many at once, closed, opened again, and by whom it is not opened."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import accepted, row

from canoa.errors import SettingError, StoreTooNew, StoreUnreachable
from canoa.store.opening import new_store
from canoa.store.port import TaskFilter
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore, RunSql

    from canoa.store.port import Store

WITHIN_S = 60.0

TEN_OPEN = """
import asyncio, os, sys
from canoa.store import migrating  # all imports before it splits: they take most of a second each time
from canoa.store.opening import new_store

store = new_store(sys.argv[1])

async def opened():
    await store.open()
    await store.aclose()

def program():
    child = os.fork()
    if not child:
        asyncio.run(opened())
        os._exit(0)
    return child

programs = [program() for _ in range(10)]
print([os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in programs])
"""

WRITES_UNTIL_KILLED = """
import asyncio, sys
from tests.contract.store.words import accept
from canoa.store.opening import new_store

async def main():
    store = new_store(sys.argv[1])
    await store.open()
    for group in range(1_000_000):
        await store.apply([accept(f"{group}-{number}") for number in range(10)])
        print(group, flush=True)

asyncio.run(main())
"""


async def test_what_is_kept_is_there_when_the_store_is_opened_again(open_store: OpenStore) -> None:
    first = await open_store()
    await accepted(first, "a")
    await first.aclose()

    second = await open_store()

    assert (await row(second, "a")).id == "a"


async def test_closing_twice_is_allowed(store: Store) -> None:
    await store.aclose()
    await store.aclose()


async def test_a_store_that_was_never_opened_can_be_closed(store_url: str) -> None:
    await new_store(store_url).aclose()


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.aclose()

    with pytest.raises(StoreUnreachable, match="open"):
        await store.task(TaskId("a"))
    with pytest.raises(StoreUnreachable, match="open"):
        await store.apply([])


async def test_ten_programs_that_open_a_new_store_at_once_all_succeed(store_url: str, open_store: OpenStore) -> None:
    programs = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TEN_OPEN, store_url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )

    async with asyncio.timeout(WITHIN_S):
        ends, said = await programs.communicate()

    assert (ends.decode().strip(), said) == (str([0] * 10), b"")
    await accepted(await open_store(), "a")


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    store: Store, store_url: str, run_sql: RunSql
) -> None:
    await accepted(store, "a")
    await store.aclose()
    await run_sql("UPDATE canoa_schema SET version_num = '9999'")

    newcomer = new_store(store_url)
    with pytest.raises(StoreTooNew, match=r"schema 9999.*knows only 0005.*pip install --upgrade"):
        await newcomer.open()
    await newcomer.aclose()

    assert await run_sql("SELECT version_num FROM canoa_schema") == "9999"
    assert await run_sql("SELECT count(*) FROM tasks") == 1


async def test_a_database_of_another_program_is_refused_and_left_alone(store_url: str, run_sql: RunSql) -> None:
    await run_sql("CREATE TABLE letters (greeting text)")

    with pytest.raises(SettingError, match="another program"):
        await new_store(store_url).open()

    assert await run_sql("SELECT count(*) FROM letters") == 0
    await run_sql("CREATE TABLE tasks (theirs text)")  # nothing of ours is left behind


async def test_what_a_killed_program_was_told_is_kept_and_nothing_by_halves(
    store_url: str, open_store: OpenStore
) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITES_UNTIL_KILLED, store_url, stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    async with asyncio.timeout(WITHIN_S):
        for _ in range(20):
            await writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        told = 20 + len((await writer.stdout.read()).splitlines())
        await writer.wait()

    kept = {task.id for task in await (await open_store()).tasks(TaskFilter(), limit=100_000)}

    promised = {f"{group}-{number}" for group, number in itertools.product(range(told), range(10))}
    assert kept >= promised
    assert len(kept - promised) in (0, 10)  # the group it did not live to hear of
