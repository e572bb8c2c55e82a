"""Whom a store belongs to: one memory broker, or recorders on a real one. Two memory brokers would each run everything
that waits in it, and so would a memory broker beside a real one.

A lease says so. Each memory broker takes it for itself; recorders on real brokers hold it together, under one name.
Its last owner thus also tells whether what waits in the store is on a broker or was forgotten by one.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import ladder, topology
from canoa.clock import now_ms
from canoa.errors import CanoaError, StoreFull, StoreTaken, StoreUnreachable
from canoa.logs import get_logger
from canoa.recorder.process import Process, is_running, this_process
from canoa.store.port import Cursor, Owe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.store.port import Lease, NewTask, Store

log = get_logger(__name__)

NAME: Final = "broker"
SHARED: Final = "real"
"""The owner's name of all recorders on real brokers."""

HELD_MS: Final = 30_000
"""How long the store of a program that was killed on another machine waits for the next one."""

RENEW_EVERY_S: Final = 10.0
LOOK_EVERY_S: Final = 0.25
PAGE: Final = 500


@asynccontextmanager
async def holding(store: Store, *, is_memory: bool, place: str) -> AsyncIterator[Hold]:
    """The store is ours inside. Raises `StoreTaken`, naming the owner and the store's `place`."""
    hold = Hold(store, _name(this_process()) if is_memory else SHARED, place=place)
    await (hold.take() if is_memory else hold.join())
    try:
        yield hold
    finally:
        if is_memory:  # others may hold the shared one
            with suppress(CanoaError):
                await store.release(NAME, hold.owner)


class Hold:
    def __init__(self, store: Store, owner: str, *, place: str) -> None:
        self.owner = owner
        self._store = store
        self._place = place
        self._seen: Lease | None = None

    async def take(self) -> None:
        """For a memory broker."""
        while not await self._leased(self.owner):
            await self._wait_for_another()

    async def join(self) -> None:
        """For a recorder on a real broker. What a memory broker has left behind is in the outbox then."""
        while True:
            last = await self._store.holder(NAME)
            if last is None or last.owner == SHARED:
                is_taken = await self._leased(SHARED)
            else:
                is_taken = await self._joined_first()
            if is_taken:
                return
            await self._wait_for_another()

    async def renew(self) -> None:
        """Never returns; raises `StoreTaken` when another one has it: we were away for too long."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                if not await self._leased(self.owner):
                    raise self._taken(await self._store.holder(NAME))
            except (StoreUnreachable, StoreFull) as exc:
                log.warning("store_not_renewed", reason=str(exc))

    async def _joined_first(self) -> bool:
        """Alone until all that waits is in the outbox: killed before that, the next one goes on with it, and nobody
        publishes meanwhile."""
        alone = _name(this_process(is_brief=True))
        if not await self._leased(alone):
            return False
        try:
            await self._owe_unfinished(alone)
        finally:
            await self._store.release(NAME, alone)
        return await self._leased(SHARED)

    async def _owe_unfinished(self, alone: str) -> None:
        after: Cursor | None = None
        count = 0
        while page := await self._store.unfinished(limit=PAGE, after=after, without_outbox=True):
            if not await self._leased(alone):
                raise self._taken(await self._store.holder(NAME))
            count += sum(map(bool, await self._store.apply([_owe(task) for task in page])))
            after = Cursor(page[-1].submitted_ms, page[-1].id)
        if count:
            log.info("tasks_of_memory_broker_published", tasks=count)

    async def _leased(self, owner: str) -> bool:
        return await self._store.lease(NAME, owner, now_ms=now_ms(), for_ms=HELD_MS) is not None

    async def _wait_for_another(self) -> None:
        """A moment, for an owner that may be dead: then its lease expires. Raises `StoreTaken` for one that lives."""
        found = await self._store.holder(NAME)
        process = None if found is None else _process(found.owner)
        lives = None if process is None else is_running(process)
        if found is not None and lives is False:
            await self._store.release(NAME, found.owner)
            return
        if (lives or self._was_renewed(found)) and not (process is not None and process.is_brief):
            raise self._taken(found)
        await asyncio.sleep(LOOK_EVERY_S)

    def _was_renewed(self, found: Lease | None) -> bool:
        seen, self._seen = self._seen, found
        return (
            seen is not None and found is not None and seen.owner == found.owner and seen.expires_ms < found.expires_ms
        )

    def _taken(self, found: Lease | None) -> StoreTaken:
        process = None if found is None else _process(found.owner)
        owner = "recorders on a real broker" if process is None else f"the memory broker of {process}"
        return StoreTaken(
            f"the store {self._place} belongs to {owner}, and two brokers would run everything in it twice; "
            "stop it, or name another store in CANOA_STORE"
        )


def _owe(task: NewTask) -> Owe:
    wait_s = 0.0 if task.due_ms is None else (task.due_ms - now_ms()) / 1000
    queue = topology.action_queue_name(task.action)
    return Owe(task_id=task.id, publication=ladder.towards(queue, task.message, wait_s))


def _name(process: Process) -> str:
    return msgspec.json.encode(process).decode()


def _process(owner: str) -> Process | None:
    """None for the shared name, and for none."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(owner, type=Process)
    return None
