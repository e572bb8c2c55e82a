"""The store in one SQLite file: no server, several programs at a time, a million tasks and more.

One thread writes, another reads: see `sqlite_link.py`. What a batch does is decided in `ledger.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from canoa.errors import SettingError, StoreFull, StoreUnreachable
from canoa.logs import get_logger
from canoa.store import (
    ledger,
    reads,
    sqlite_batch,
    sqlite_catalogue,
    sqlite_limits,
    sqlite_owed,
    sqlite_routed,
    sqlite_slips,
    sqlite_tokens,
)
from canoa.store.routed_debts import Free, Taking
from canoa.store.routed_notes import Notes
from canoa.store.routed_port import DEFAULT_BREAKERS, DEFAULT_SETTINGS
from canoa.store.routed_questions import RoutedReads
from canoa.store.sqlite_ahead import Ahead
from canoa.store.sqlite_flight import Hearing
from canoa.store.sqlite_link import SqliteLink, connect
from canoa.store.sqlite_schema import bring_up_to_date
from canoa.store.sqlite_syncing import Syncer
from canoa.store.token_reads import TokenReads

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from canoa.execution.health import BreakerSettings
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import Route
    from canoa.execution.step_records import StepRecord
    from canoa.execution.step_settings import StepSettings
    from canoa.store.port import (
        Answer,
        Change,
        Lease,
        OutboxRow,
        Retention,
        Writes,
    )
    from canoa.store.routed_port import (
        DecidesAhead,
        FullStore,
        HealthNote,
        HealthNoted,
        Move,
        Moved,
        NodeRow,
        NodesPut,
        OnMoved,
        Owed,
    )
    from canoa.store.token_port import TokenRow
    from canoa.vocabulary import NodeId


log = get_logger(__name__)

Result = TypeVar("Result")

PAGE: Final = 500
"""Tasks that are looked through at once, while moves wait."""


class SqliteStore(RoutedReads, TokenReads):
    """In the file at `path`, which `open` creates, with its folder, where there is none."""

    _dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = SqliteLink(path, name="canoa-store-write", first=sqlite_slips.copy)
        self._reader = SqliteLink(path, name="canoa-store-read")
        self._notes = Notes()
        self._ahead: Ahead | None = None  # while it is open

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._path)!r})"

    # --- Its life -----------------------------------------------------------------------------------

    async def open(self) -> None:
        self._notes = Notes()  # what was known before may have changed meanwhile
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise SettingError(f"the folder of the store {self._path} cannot be made: {exc}") from exc
        try:
            await self._writer.open()
            await self._writer.read(partial(bring_up_to_date, path=self._path))
            self._notes.data_version = await self._writer.read(sqlite_routed.version_of)
            await self._copy_left()  # after that: what others put down since changes the version
            await self._reader.open()
            syncer = Syncer(self._path, self._writer.start_checkpoint)
            self._ahead = Ahead(self._writer, connect(self._path), syncer, self._notes)
        except BaseException:
            await self.aclose()
            raise

    async def _copy_left(self) -> None:
        """Slips of those who were killed. Where there is no room for that, what is written next tries again."""
        try:
            if await self._writer.read(sqlite_slips.are_there):
                await self._writer.write(sqlite_slips.copy)
        except StoreFull as exc:
            self._notes.data_version = None  # nothing is decided before they are copied
            log.warning("slips_not_copied", reason=str(exc))

    async def aclose(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await ahead.aclose()
        # The reader first: whoever closes last also empties the write-ahead log, and only the writer should.
        await self._reader.aclose()
        await self._writer.aclose()

    @property
    def writes(self) -> Writes:
        return self._writer.writes

    # --- Changes ------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        def work(connection: sqlite3.Connection) -> list[Answer]:
            self._notes.memory.take(ledger.needs_of(changes).tasks)  # they change without their managers
            return sqlite_batch.apply(connection, changes)

        return await self._write_alone(work)

    async def take_outbox(self, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        work = partial(sqlite_limits.take_outbox, now_ms=now_ms, limit=limit, for_ms=for_ms)
        return await self._writer.write(work)

    async def forget(self, retention: Retention, *, now_ms: int, limit: int) -> int:
        def work(connection: sqlite3.Connection) -> int:
            self._notes.memory.clear()
            return sqlite_limits.forget(connection, retention, now_ms=now_ms, limit=limit)

        return await self._write_alone(work)

    async def _ask(self, asked: reads.Asked | None) -> list[reads.Row]:
        if asked is None:
            return []

        def fetched(connection: sqlite3.Connection) -> list[reads.Row]:
            return connection.execute(asked.sql, asked.arguments).fetchall()

        return await self._reader.read(fetched)

    async def _ask_of_tasks(self, asked: reads.Asked | None) -> list[reads.Row]:
        await self._routed().copy_slips()
        return await self._ask(asked)

    async def queued_for(self) -> dict[NodeId, int]:
        """Nothing is written for it: it is asked for every few seconds, and about right is right enough."""
        return dict(Counter(await super().queued_for()) + self._notes.unwritten.by_node())

    def _without_rows(self, steps: list[StepRecord]) -> list[StepRecord]:
        return self._notes.unwritten.over(steps)

    async def _ask_of_steps(self, asked: reads.Asked) -> list[reads.Row]:
        await self._routed().write_all()
        return await self._ask(asked)

    # --- Routed tasks -------------------------------------------------------------------------------

    async def advance(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str] = (),
        settings: StepSettings = DEFAULT_SETTINGS,
    ) -> list[Moved]:
        told: asyncio.Future[list[Moved] | Exception] = asyncio.get_running_loop().create_future()
        hearing = Hearing(None, _ignored, partial(_tell, told))
        self._routed().start(moves, route, paid=paid, settings=settings, hearing=hearing)
        answers = await told
        if isinstance(answers, Exception):
            raise answers
        return answers

    async def restore(self, *, now_ms: int) -> int:
        task_ids = await self._reader.read(sqlite_routed.open_tasks)
        count = 0
        for at in range(0, len(task_ids), PAGE):
            page = task_ids[at : at + PAGE]
            work = partial(sqlite_routed.restore, task_ids=page, notes=self._notes, now_ms=now_ms)
            count += await self._write_alone(work)
        return count

    def start_advance(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str],
        settings: StepSettings,
        ahead: Callable[[Sequence[Owed]], None],
        on_committed: Callable[[Sequence[Moved]], None],
        on_end: OnMoved,
        is_hurried: bool,
    ) -> None:
        hearing = Hearing(ahead, on_committed, on_end)
        self._routed().start(moves, route, paid=paid, settings=settings, hearing=hearing, is_hurried=is_hurried)

    async def _write_alone(
        self, work: Callable[[sqlite3.Connection], Result], *, after: Callable[[Result], None] | None = None
    ) -> Result:
        """While no moves are decided or written. To the end, also where the caller does not wait for it."""

        async def write() -> Result:
            async with self._routed().alone():
                return await self._writer.write(work, after=after)

        return await asyncio.shield(asyncio.ensure_future(write()))

    def _routed(self) -> Ahead:
        if self._ahead is None:
            raise StoreUnreachable(f"the store {self._path} is closed; open it before you use it")
        return self._ahead

    async def take_owed(self, *, now_ms: int, limit: int, for_ms: int) -> list[Owed]:
        free = Free.at(now_ms, for_ms=for_ms)
        if not (self._notes.debts.want_a_look(free) or await self._reader.read(partial(_may_be_owed, free=free))):
            return []  # as in every burst: to have the store alone would hold up all moves, every few seconds
        work = partial(sqlite_owed.take_owed, debts=self._notes.debts, now_ms=now_ms, limit=limit, for_ms=for_ms)
        taking = await self._write_alone(work, after=Taking.settle)
        return taking.owed

    async def identity(self) -> int:
        return await self._writer.write(sqlite_catalogue.identity)

    async def put_plan(self, plan: Plan, *, now_ms: int) -> bool:
        return await self._writer.write(partial(sqlite_catalogue.put_plan, plan=plan, now_ms=now_ms))

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> NodesPut:
        return await self._writer.write(partial(sqlite_catalogue.put_nodes, nodes=nodes))

    async def touch_nodes(self, seen_ms: Mapping[NodeId, int]) -> None:
        await self._writer.write(partial(sqlite_catalogue.touch_nodes, seen_ms=seen_ms))

    async def forget_nodes(self, *, seen_before_ms: int) -> list[NodeId]:
        return await self._writer.write(partial(sqlite_catalogue.forget_nodes, seen_before_ms=seen_before_ms))

    async def drop_nodes(self, versions: Mapping[NodeId, int]) -> list[NodeId]:
        return await self._writer.write(partial(sqlite_catalogue.drop_nodes, versions=versions))

    async def note_health(
        self, notes: Sequence[HealthNote], *, settings: BreakerSettings = DEFAULT_BREAKERS
    ) -> HealthNoted:
        return await self._writer.write(partial(sqlite_catalogue.note_health, notes=notes, settings=settings))

    # --- Tokens -------------------------------------------------------------------------------------

    async def add_token(self, token: TokenRow) -> bool:
        return await self._writer.write(partial(sqlite_tokens.add_token, token=token))

    async def revoke_token(self, name: str, *, now_ms: int) -> bool:
        return await self._writer.write(partial(sqlite_tokens.revoke_token, name=name, now_ms=now_ms))

    async def touch_tokens(self, used_ms: Mapping[bytes, int]) -> None:
        await self._writer.write(partial(sqlite_tokens.touch_tokens, used_ms=used_ms))

    # --- Leases and limits --------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        work = partial(sqlite_limits.lease, name=name, owner=owner, now_ms=now_ms, for_ms=for_ms)
        return await self._writer.write(work)

    async def release(self, name: str, owner: str) -> None:
        await self._writer.write(partial(sqlite_limits.release, name=name, owner=owner))

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        work = partial(
            sqlite_limits.reserve,
            key=key,
            count=count,
            per_ms=per_ms,
            burst=burst,
            now_ms=now_ms,
            within_ms=within_ms,
        )
        return await self._writer.write(work)

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        work = partial(sqlite_limits.take_slot, key=key, holder=holder, limit=limit, now_ms=now_ms, for_ms=for_ms)
        return await self._writer.write(work)

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        await self._writer.write(partial(sqlite_limits.free_slots, holders=holders))


def _tell(told: asyncio.Future[list[Moved] | Exception], answers: list[Moved] | Exception) -> None:
    if not told.done():
        told.set_result(answers)


def _may_be_owed(connection: sqlite3.Connection, free: Free) -> bool:
    """By nobody any more, or on slips of a program that was killed."""
    return sqlite_slips.are_there(connection) or sqlite_owed.are_there(connection, free)


def _ignored(_: object) -> None:
    """Whoever waits hears the rest."""


_port: type[FullStore] = SqliteStore
_ahead: type[DecidesAhead] = SqliteStore
