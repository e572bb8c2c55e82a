"""Whom a store belongs to: one memory broker, or recorders on a real one; and what one leaves behind for the other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.store.words import NOW_MS, accepted, applied, ended

from canoa.broker.port import Publication
from canoa.clock import now_ms
from canoa.errors import StoreTaken
from canoa.recorder import holding as holding_module
from canoa.recorder.holding import HELD_MS, NAME, Hold, holding
from canoa.recorder.process import this_process
from canoa.store.port import Owe, Sent

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import Store

WITHIN_S = 10.0  # well below `HELD_MS`: nobody waited for a lease to expire

HOLDS_UNTIL_KILLED = """
import asyncio, sys
from canoa.recorder.holding import holding
from canoa.store.opening import new_store

async def main():
    store = new_store(sys.argv[1])
    await store.open()
    async with holding(store, is_memory=True, place="x"):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def on_memory(store: Store) -> AbstractAsyncContextManager[Hold]:
    return holding(store, is_memory=True, place="sqlite:///here.db")


def on_rabbitmq(store: Store) -> AbstractAsyncContextManager[Hold]:
    return holding(store, is_memory=False, place="sqlite:///here.db")


async def owed(store: Store) -> list[str | None]:
    """All in the outbox, which is empty then."""
    rows = await store.take_outbox(now_ms=NOW_MS, limit=1000, for_ms=1000)
    await store.apply([Sent(seq=row.seq) for row in rows])
    return [row.publication.message.message_id for row in rows]


async def test_a_store_belongs_to_one_memory_broker_and_the_second_hears_to_which(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()

    async with on_memory(first):
        with pytest.raises(StoreTaken, match=rf"here.db.*process {os.getpid()} on {socket.gethostname()}.*CANOA_STORE"):
            await on_memory(second).__aenter__()

    async with asyncio.timeout(WITHIN_S), on_memory(second):
        pass


async def test_the_store_of_a_memory_broker_that_was_killed_is_free_at_once(store: Store, store_url: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDS_UNTIL_KILLED, store_url, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    async with asyncio.timeout(WITHIN_S):
        assert await program.stdout.readline() == b"held\n"
        with pytest.raises(StoreTaken, match=f"process {program.pid} "):
            await on_memory(store).__aenter__()

        program.send_signal(signal.SIGKILL)
        await program.wait()

        async with on_memory(store):
            pass


async def test_the_store_of_a_memory_broker_on_another_machine_is_free_when_its_lease_expires(store: Store) -> None:
    elsewhere = msgspec.structs.replace(this_process(), host="elsewhere")
    owner = msgspec.json.encode(elsewhere).decode()
    await store.lease(NAME, owner, now_ms=now_ms() - HELD_MS + 1000, for_ms=HELD_MS)

    async with asyncio.timeout(WITHIN_S), on_memory(store):
        pass


async def test_a_memory_broker_on_another_machine_that_renews_its_lease_is_alive(store: Store) -> None:
    elsewhere = msgspec.structs.replace(this_process(), host="elsewhere")
    owner = msgspec.json.encode(elsewhere).decode()
    await store.lease(NAME, owner, now_ms=now_ms(), for_ms=HELD_MS)

    async def renew() -> None:
        while True:
            await asyncio.sleep(0.1)
            await store.lease(NAME, owner, now_ms=now_ms(), for_ms=HELD_MS)

    renewing = asyncio.create_task(renew())
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(StoreTaken, match="on elsewhere"):
            await on_memory(store).__aenter__()
    renewing.cancel()


async def test_a_memory_broker_and_a_real_one_never_share_a_store(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding_module, "RENEW_EVERY_S", 0.1)
    first, second = await open_store(), await open_store()
    async with asyncio.timeout(WITHIN_S):
        async with on_memory(first):
            with pytest.raises(StoreTaken, match=f"the memory broker of process {os.getpid()}"):
                await on_rabbitmq(second).__aenter__()

        async with on_rabbitmq(first) as hold:
            renewing = asyncio.create_task(hold.renew())
            with pytest.raises(StoreTaken, match="recorders on a real broker"):
                await on_memory(second).__aenter__()
            renewing.cancel()


async def test_recorders_on_a_real_broker_share_a_store(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()

    async with asyncio.timeout(WITHIN_S), on_rabbitmq(first), on_rabbitmq(second):
        pass


async def test_who_lost_its_store_to_another_one_hears_of_it(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was stopped for longer than its lease lasts."""
    monkeypatch.setattr(holding_module, "RENEW_EVERY_S", 0.01)
    first, second = await open_store(), await open_store()
    async with asyncio.timeout(WITHIN_S), on_memory(first) as late:
        await first.release(NAME, late.owner)
        async with on_memory(second):
            with pytest.raises(StoreTaken, match="the memory broker of process"):
                await late.renew()


async def test_what_a_memory_broker_left_is_owed_to_a_real_one_once(store: Store) -> None:
    async with on_memory(store):
        await accepted(store, "a", "b", "c")
        await accepted(store, "d", outbox=True)
        await ended(store, "b")

    async with asyncio.timeout(WITHIN_S), on_rabbitmq(store):
        assert await owed(store) == ["d", "a", "c"]
    async with asyncio.timeout(WITHIN_S), on_rabbitmq(store):
        assert await owed(store) == []


async def test_what_a_real_broker_has_is_not_owed_again(store: Store) -> None:
    async with on_rabbitmq(store):
        await accepted(store, "a")

    async with asyncio.timeout(WITHIN_S), on_rabbitmq(store):
        assert await owed(store) == []


async def test_who_is_killed_while_he_owes_what_is_left_is_followed_by_one_who_goes_on(store: Store) -> None:
    async with on_memory(store):
        await accepted(store, *(f"{number:03}" for number in range(50)))
    dead = msgspec.structs.replace(this_process(is_brief=True), started="1")
    await store.lease(NAME, msgspec.json.encode(dead).decode(), now_ms=now_ms(), for_ms=HELD_MS)
    some = await store.unfinished(limit=20)
    await applied(
        store, *(Owe(task_id=task.id, publication=Publication(message=task.message, key="q")) for task in some)
    )

    async with asyncio.timeout(WITHIN_S), on_rabbitmq(store):
        assert sorted(filter(None, await owed(store))) == [f"{number:03}" for number in range(50)]


async def test_of_recorders_that_start_at_once_one_owes_what_is_left(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    names = [f"{number:04}" for number in range(1200)]
    async with on_memory(stores[0]):
        await accepted(stores[0], *names)

    async with asyncio.timeout(30):
        holds = [on_rabbitmq(store) for store in stores]
        await asyncio.gather(*(hold.__aenter__() for hold in holds))

    assert sorted(filter(None, [*await owed(stores[0]), *await owed(stores[0])])) == names
    for hold in holds:
        await hold.__aexit__(None, None, None)
