"""Moves on SQLite, decided at once on the event loop, and written soon after, many in one transaction.

What is decided is true unless another program has written since: the transaction finds out, and then the moves are
decided again from the rows, one batch after the other. Attempts may leave before they are on disk: a manager that is
killed meanwhile has not acknowledged what it heard, so the broker brings it again, and the attempt is sent twice.
Whatever callers rely on waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable
from canoa.execution.step_moves import Rerun, StepEnd
from canoa.store import sqlite_routed
from canoa.store.packing import plain
from canoa.store.routed_ledger import RoutedLedger, needs_of
from canoa.store.routed_port import Begin
from canoa.store.sqlite_link import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_memory import RoutedTask
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move, Moved, OnMoved, Owed
    from canoa.store.sqlite_link import SqliteLink
    from canoa.store.sqlite_routed import RoutedRows

LINGER_S: Final = 0.003
"""How long moves that nobody waits for may wait for company: a quick action ends within it, and is written once."""

CROWD: Final = 50
CROWD_EVERY_S: Final = 0.02
"""So many moves go to disk at most so often: what happens to a task meanwhile is written once."""

GROW_AFTER: Final = 32
"""Writes of a store that is in use: its log is made as long as it will be."""

FULL: Final = 1_000
"""Moves that are written as soon as they can be."""

FEW: Final = 4
FEW_BYTES: Final = 64 * 1024
QUICK_S: Final = 0.002
"""So few moves are written on the event loop, as long as the disk takes less than this for it: handing them over would
take half as long again."""

HERE: Final = 64
"""Such writes, until one goes through the thread: that is where the log is written into the file, which takes long."""


TOOK_WEIGHT: Final = 0.2
"""Of the newest in the mean: one that took long sends the next ones to the thread."""


class _Stale(Exception):
    """It was decided on what is not so any more."""


class _Batch(NamedTuple):
    """Moves that came together. `answers`: as decided, until they are on disk."""

    moves: Sequence[Move]
    on_end: OnMoved
    answers: list[Moved]


class _Flight:
    """Batches that are written together."""

    def __init__(self, ledger: RoutedLedger, route: Route, settings: StepSettings, *, is_ahead: bool) -> None:
        self.ledger = ledger
        self.route = route
        self.settings = settings
        self.is_ahead = is_ahead
        self.batches: list[_Batch] = []
        self.began_s = monotonic()
        self.count = 0
        self.is_awaited = False
        self.is_spoilt = False  # what it knows of its tasks is not so

    def is_for(self, route: Route, settings: StepSettings, *, is_ahead: bool) -> bool:
        return self.route is route and self.settings is settings and self.is_ahead is is_ahead


class Ahead:
    """`writer` and `reader` are open. Belongs to the event loop, and so do the notes, but for `alone`."""

    def __init__(self, writer: SqliteLink, reader: sqlite3.Connection, notes: Notes) -> None:
        self._writer = writer
        self._reader = reader
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Flight] = []  # the last one may grow
        self._written: _Flight | None = None  # just now
        self._paid: set[str] = set()  # before they were owed on disk
        self._is_sound = True  # the last write was written
        self._began_s = float("-inf")
        self._has_grown = False
        self._took_s = 2 * QUICK_S  # lately, for a few moves
        self._written_here = 0  # since the thread wrote
        self._timer: asyncio.TimerHandle | None = None
        self._holders = 0
        self._held: deque[Callable[[], None]] = deque()  # what came while others had it alone
        self._is_idle = asyncio.Event()
        self._alone = asyncio.Lock()
        self._again: set[asyncio.Task[None]] = set()
        self._is_idle.set()

    def start(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str],
        settings: StepSettings,
        ahead: Callable[[Sequence[Owed]], None] | None,
        on_end: OnMoved,
    ) -> None:
        """`on_end` hears the answers once they are true, or why the moves were not written."""
        if any(isinstance(move, Rerun) for move in moves):
            self._spawn(self._rerun(moves, route, paid=paid, settings=settings, on_end=on_end))
        elif self._holders:
            again = partial(self.start, moves, route, paid=paid, settings=settings, ahead=ahead, on_end=on_end)
            self._held.append(again)
        else:
            self._pay(paid)
            # A store that cannot write makes its callers try again: what they send ahead would run every time.
            flight = self._flight_for(route, settings, is_ahead=ahead is not None and self._is_sound)
            self._take(flight, moves, ahead, on_end)

    def _take(
        self,
        flight: _Flight,
        moves: Sequence[Move],
        ahead: Callable[[Sequence[Owed]], None] | None,
        on_end: OnMoved,
    ) -> None:
        try:
            answers = self._decide(flight, moves)
        except Exception as exc:
            self._spoil(StoreUnreachable("other moves could not be decided; these can be tried again"))
            on_end(self._writer.explained(exc))
            return
        flight.batches.append(_Batch(moves, on_end, answers))
        if ahead is not None and (sent := [each for moved in answers for each in moved.sent]):
            ahead(sent)
        self._schedule()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing is decided and nothing is on its way to disk: whoever else changes tasks or notes does it here."""
        self._holders += 1
        try:
            async with self._alone:
                self._schedule()
                await self._is_idle.wait()
                yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._holders -= 1
        while self._held and not self._holders:
            self._held.popleft()()

    async def aclose(self) -> None:
        """Once all of it is on disk."""
        while self._again or self._held:
            await asyncio.sleep(0)
            if self._again:
                await asyncio.wait(self._again)
        async with self.alone():
            self._reader.close()

    # --- Deciding -----------------------------------------------------------------------------------------

    def _flight_for(self, route: Route, settings: StepSettings, *, is_ahead: bool) -> _Flight:
        if self._waiting and self._waiting[-1].is_for(route, settings, is_ahead=is_ahead):
            return self._waiting[-1]
        ledger = RoutedLedger({}, self._notes, route=route, settings=settings, is_ahead=is_ahead)
        flight = _Flight(ledger, route, settings, is_ahead=is_ahead)
        self._waiting.append(flight)
        self._is_idle.clear()
        return flight

    def _decide(self, flight: _Flight, moves: Sequence[Move]) -> list[Moved]:
        if not moves:
            return []
        ledger, before = flight.ledger, flight.count
        flight.count += len(moves)
        ledger.know(self._known(needs_of(moves), ledger))
        sqlite_routed.decide(self._reader, ledger, moves, self._notes)
        answers = ledger.answers(before)
        flight.is_awaited = flight.is_awaited or any(moved.owed for moved in answers)
        return answers

    def _known(self, task_ids: Iterable[str], ledger: RoutedLedger) -> dict[str, RoutedTask]:
        """As they are after what is on its way to disk."""
        known: dict[str, RoutedTask] = {}
        missing = [task_id for task_id in task_ids if ledger.known(task_id) is None]
        under_way = [*self._waiting[-2::-1], *([] if self._written is None else [self._written])]
        for flight in under_way:
            found = {task_id: task for task_id in missing if (task := flight.ledger.known(task_id)) is not None}
            known |= found
            missing = [task_id for task_id in missing if task_id not in found]
        return known | sqlite_routed.tasks(self._reader, missing, self._notes) if missing else known

    def _pay(self, keys: Sequence[str]) -> None:
        debts = self._notes.debts
        for key in map(plain, keys):
            if debts.owes(key):
                debts.pay([key])
            elif self._waiting or self._written is not None:
                self._paid.add(key)

    # --- Writing ------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._written is not None or not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._wait_s(self._waiting[0])
        if wait_s <= 0:
            self._write()
        else:
            self._timer = self._loop.call_later(wait_s, self._write)

    def _wait_s(self, flight: _Flight) -> float:
        if self._holders or len(self._waiting) > 1 or flight.count >= FULL:
            return 0
        if flight.count < CROWD:
            return 0 if flight.is_awaited else flight.began_s + LINGER_S - monotonic()
        return self._began_s + CROWD_EVERY_S - monotonic()

    def _write(self) -> None:
        self._timer = None
        self._began_s = monotonic()
        flight = self._written = self._waiting.pop(0)
        try:
            flight.ledger.close(self._paid)
            if not self._waiting:
                self._paid.clear()
            rows = sqlite_routed.rows_of(flight.ledger)
            work = partial(self._write_rows, rows=rows)
            if not self._is_quick(flight) or not self._writes_here(work):
                self._written_here = 0
                self._writer.start_write(work, partial(self._on_written, flight))
                return
        except Exception as exc:
            self._on_written(flight, exc)
        else:
            self._on_written(flight, None)

    def _is_quick(self, flight: _Flight) -> bool:
        if flight.count > FEW or self._took_s > QUICK_S or self._written_here >= HERE:
            return False
        return sum(_size_bytes(move) for batch in flight.batches for move in batch.moves) <= FEW_BYTES

    def _writes_here(self, work: Callable[[sqlite3.Connection], None]) -> bool:
        try:
            self._writer.write_here(work)
        except Busy:
            return False
        self._written_here += 1
        return True

    def _note_time(self, flight: _Flight) -> None:
        if flight.count <= FEW:
            self._took_s += TOOK_WEIGHT * (monotonic() - self._began_s - self._took_s)

    def _write_rows(self, connection: sqlite3.Connection, rows: RoutedRows) -> None:
        if not sqlite_routed.is_as_known(connection, self._notes):
            raise _Stale
        try:
            sqlite_routed.write(connection, rows)
        except sqlite3.IntegrityError as exc:  # a row that nobody knew of
            raise _Stale from exc

    def _on_written(self, flight: _Flight, error: Exception | None) -> None:
        if error is not None:
            self._spoil_after(flight, error)
            return
        self._is_sound = True
        self._note_time(flight)
        flight.ledger.settle()
        if flight.is_spoilt:
            self._notes.memory.clear()
        self._settle_paid()
        for batch in flight.batches:
            batch.on_end(batch.answers)
        self._next()
        if not self._has_grown and self._writer.writes.done >= GROW_AFTER:
            self._has_grown = True
            self._writer.start_growing()

    def _settle_paid(self) -> None:
        """What was paid while it was written down that it is owed."""
        owed = {key for key in self._paid if self._notes.debts.owes(key)}
        self._notes.debts.pay(owed)
        self._paid -= owed

    def _next(self) -> None:
        self._written = None
        if self._waiting:
            self._schedule()
        else:
            self._paid.clear()
            self._is_idle.set()

    # --- When it is not as it was thought -----------------------------------------------------------------

    def _spoil(self, error: CanoaError) -> None:
        """Nothing of what waits can be written: its tasks are half moved."""
        flights, self._waiting = self._waiting, []
        self._notes.memory.clear()
        if self._written is not None:
            self._written.is_spoilt = True  # its rows are good, its tasks are not
        for flight in flights:
            for batch in flight.batches:
                batch.on_end(error)
        if self._written is None:
            self._next()

    def _spoil_after(self, flight: _Flight, error: Exception) -> None:
        if isinstance(error, StoreFull | StoreUnreachable | SettingError):
            self._is_sound = False
            self._waiting.insert(0, flight)
            self._written = None
            self._spoil(error)
        else:
            self._spawn(self._write_one_by_one(flight))

    async def _write_one_by_one(self, flight: _Flight) -> None:
        """From the rows: so each finds how it is, and what is wrong with one of them is not the others'."""
        self._holders += 1
        try:
            flights, self._waiting = [flight, *self._waiting], []
            self._notes.memory.clear()
            for each in flights:
                for batch in each.batches:
                    batch.on_end(await self._decided_again(batch.moves, each.route, paid=(), settings=each.settings))
        finally:
            self._next()
            self._let_go()

    async def _rerun(
        self, moves: Sequence[Move], route: Route, *, paid: Sequence[str], settings: StepSettings, on_end: OnMoved
    ) -> None:
        """It needs the end before it as it was written."""
        async with self.alone():
            answers = await self._decided_again(moves, route, paid=paid, settings=settings)
        on_end(answers)

    async def _decided_again(
        self, moves: Sequence[Move], route: Route, *, paid: Sequence[str], settings: StepSettings
    ) -> list[Moved] | Exception:
        """And written, in one transaction."""
        work = partial(sqlite_routed.advance, moves=moves, paid=paid, notes=self._notes, route=route, settings=settings)
        try:
            ledgers = await self._writer.write(work, after=_settle)
        except Exception as exc:
            return exc
        return [moved for each in ledgers for moved in each.answers()]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="store.again")
        self._again.add(task)
        task.add_done_callback(self._again.discard)


def _size_bytes(move: Move) -> int:
    if isinstance(move, Begin):
        return len(move.task.message.body)
    return len(move.output) if isinstance(move, StepEnd) else 0


def _settle(ledgers: Sequence[RoutedLedger]) -> None:
    for each in ledgers:
        each.settle()
