"""Moves on SQLite, decided at once on the event loop, and written soon after, many in one transaction.

What is decided is true unless another program has written since: the transaction finds out, and then the moves are
decided again from the rows, one batch after the other. Attempts may leave before they are on disk: a manager that is
killed meanwhile has not acknowledged what it heard, so the broker brings it again, and the attempt is sent twice.
What else moves owe leaves once it is committed, so that a kill cannot undo it any more, and so does all that follows
from them; what was heard is acknowledged, and whoever waits for it is told, once it is on disk. A power cut in between
makes the broker bring it again.

At most one *flight* of moves is on its way to disk, and one gathers behind it, over the same tasks. What the first one
writes is fixed when it leaves. Where either cannot be written, neither can be trusted any more.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from canoa.clock import now_ms
from canoa.errors import CanoaError, SettingError, StoreFull, StoreUnreachable
from canoa.execution.step_moves import Rerun
from canoa.logs import get_logger
from canoa.store import sqlite_routed, sqlite_slips
from canoa.store.holding import Holding
from canoa.store.newcomers import Newcomers
from canoa.store.packing import plain
from canoa.store.routed_ledger import RoutedLedger, needs_of
from canoa.store.same_choices import SameChoices
from canoa.store.sqlite_flight import Batch, Flight, Hearing, without_sent
from canoa.store.sqlite_link import Busy
from canoa.store.sqlite_pace import Pace
from canoa.store.sqlite_slips import Slips
from canoa.store.telling import tell

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.store.routed_memory import RoutedTask
    from canoa.store.routed_notes import Notes
    from canoa.store.routed_port import Move, Moved
    from canoa.store.sqlite_link import SqliteLink
    from canoa.store.sqlite_routed import RoutedRows
    from canoa.store.sqlite_syncing import Syncer

log = get_logger(__name__)

GROW_AFTER: Final = 32
"""Writes of a store that is in use: its log is made as long as it will be."""

LASTING_S: Final = 2.0
"""After which it is written that a step was sent, if nothing else has happened to it, with whatever is written next, or
within as long again. Longer spares more rows where steps are slow, or wait in their nodes' queues, and runs more of
them twice should the manager be killed. With 1 s, two thousand fan-outs at once took a tenth longer. Timers look at
rows, so `routed_ledger.DUE_LATER_MS` is longer than twice this."""

TRIES: Final = 3
"""To write it all: another program that has written meanwhile makes one of them vain."""


class _Stale(Exception):
    """It was decided on what is not so any more."""


class Ahead:
    """`writer` is open, and so are `reader` and `syncer`, which this closes. Belongs to the event loop, and so do the
    notes, but for whoever has them `alone`."""

    def __init__(self, writer: SqliteLink, reader: sqlite3.Connection, syncer: Syncer, notes: Notes) -> None:
        self._writer = writer
        self._reader = reader
        self._syncer = syncer
        self._notes = notes
        self._newcomers = Newcomers(now_ms())
        self._slips = Slips(writer)
        self._loop = asyncio.get_running_loop()
        self._waiting: Flight | None = None
        self._written: Flight | None = None  # just now
        self._spoilt: list[Flight] = []  # to be decided again, once nothing is on its way
        self._paid: set[str] = set()  # before they were owed on disk
        self._is_sound = True  # the last write was written
        self._trouble: CanoaError | None = None  # why the last one was not
        self._pace = Pace()
        self._has_grown = False
        self._timer: asyncio.TimerHandle | None = None
        self._last: tuple[Route, StepSettings] | None = None  # of the last flight
        self._looking: asyncio.TimerHandle | None = None  # for what has lasted
        self._holding = Holding()  # while it is held, nothing is decided
        self._is_idle = asyncio.Event()
        self._alone = asyncio.Lock()
        self._working: set[asyncio.Task[None]] = set()
        self._is_idle.set()

    def start(
        self,
        moves: Sequence[Move],
        route: Route,
        *,
        paid: Sequence[str],
        settings: StepSettings,
        hearing: Hearing,
        is_hurried: bool = True,
    ) -> None:
        """`is_hurried`: somebody waits until it is on disk; otherwise only the broker does."""
        flight = self._waiting
        holding = self._holding
        if not holding.is_held and flight is not None and not flight.is_for(route, settings):
            holding.hold()
            self._spawn(self._pass_by())
        needs = needs_of(moves)
        if holding.is_held or self._slips.tell_of(needs):
            again = partial(self.start, paid=paid, settings=settings, hearing=hearing, is_hurried=is_hurried)
            if holding.is_held:
                holding.later(partial(again, moves, route))
            else:
                holding.hold()
                self._spawn(self._after_slips(partial(again, moves, route), hearing))
        elif Rerun in {*map(type, moves)}:
            holding.hold()
            self._spawn(self._rerun(moves, route, paid=paid, settings=settings, hearing=hearing))
        else:
            self._pay(paid)
            flight = flight or self._new_flight(route, settings)
            flight.is_hurried = flight.is_hurried or is_hurried
            self._take(moves, needs, flight, hearing)

    def _take(self, moves: Sequence[Move], needs: Mapping[str, bool], flight: Flight, hearing: Hearing) -> None:
        ahead = hearing.ahead
        try:
            # A store that cannot write makes its callers try again: what they send ahead would run every time.
            answers = self._decide(flight, moves, needs, is_ahead=ahead is not None and self._is_sound)
        except Exception as exc:
            log.warning("moves_are_decided_again", moves=flight.count, reason=repr(exc))
            flight.batches.append(Batch(moves, hearing, []))
            self._spoil()
            return
        flight.batches.append(Batch(moves, hearing, answers))
        if ahead is not None and (sent := [each for moved in answers for each in moved.sent]):
            tell(ahead, sent)
        self._schedule()

    # --- Having it alone ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing is decided and nothing is being written: whoever else changes tasks or notes does it here."""
        async with self._alone:
            await self._holding.wait_free()
            self._holding.hold()  # and not before: between two who want it alone, what was held is decided
            try:
                await self._settled()
                yield
            finally:
                self._holding.let_go()

    async def write_all(self) -> None:
        """Also what could have waited. Raises why it cannot be."""
        if self._notes.unwritten or not self._is_idle.is_set():
            async with self.alone():
                await self._write_lasting()
                if self._notes.unwritten:
                    raise self._trouble or StoreUnreachable("other programs write to the store all the time")

    async def copy_slips(self) -> None:
        """Before tables are read. Where they cannot be, tables are read as they are."""
        await self._slips.try_to_copy()

    async def aclose(self) -> None:
        """Once all of it is on disk."""
        while self._working:
            await asyncio.wait(self._working)
        async with self.alone():
            await self._write_lasting()
            await self._slips.aclose()
            await self._syncer.aclose()
            self._reader.close()
        if self._looking is not None:
            self._looking.cancel()

    async def _settled(self) -> None:
        """All that was decided is committed."""
        self._schedule()
        await self._is_idle.wait()

    async def _after_slips(self, again: Callable[[], None], hearing: Hearing) -> None:
        """What is about tasks whose rows are not in the tables yet. Where they cannot be, it must be brought again."""
        try:
            await self._slips.copy()
        except Exception as exc:
            tell(hearing.on_end, exc)
        else:
            self._holding.first(again)
        self._holding.let_go()

    async def _pass_by(self) -> None:
        await self._settled()
        self._holding.let_go()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="store.alone")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    # --- Deciding -----------------------------------------------------------------------------------------

    def _new_flight(self, route: Route, settings: StepSettings) -> Flight:
        self._is_idle.clear()
        self._last = route, settings
        flight = self._waiting = Flight(self._notes, route, settings)
        return flight

    def _decide(
        self, flight: Flight, moves: Sequence[Move], needs: Mapping[str, bool], *, is_ahead: bool
    ) -> list[Moved]:
        if not moves:
            return []
        ledger, before = flight.ledger, flight.count
        flight.count += len(moves)
        ledger.know(self._known(needs, ledger))
        ledger.send_ahead(is_ahead)
        sqlite_routed.decide(self._reader, ledger, moves, self._notes)
        answers = ledger.answers(before)
        flight.is_awaited = flight.is_awaited or any(moved.owed for moved in answers)
        return answers

    def _known(self, needs: Mapping[str, bool], ledger: RoutedLedger) -> dict[str, RoutedTask]:
        """As they are after what is on its way to disk."""
        known: dict[str, RoutedTask] = {}
        is_new, now_s = self._newcomers.is_new, time()
        missing = [
            task_id
            for task_id, begins in needs.items()
            if ledger.known(task_id) is None and not (begins and is_new(task_id, now_s))
        ]
        if self._written is not None:
            written = self._written.ledger
            known = {task_id: task for task_id in missing if (task := written.known(task_id)) is not None}
            missing = [task_id for task_id in missing if task_id not in known]
        return known | sqlite_routed.tasks(self._reader, missing, self._notes) if missing else known

    def _pay(self, keys: Sequence[str]) -> None:
        debts = self._notes.debts
        known = [*map(plain, keys)]
        if not self._is_idle.is_set():
            self._paid.update([key for key in known if not debts.owes(key)])
        debts.pay(known)

    # --- Writing ------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._written is not None or self._waiting is None:
            return
        self._stop_timer()
        wait_s = 0.0 if self._holding.is_held else self._wait_s(self._waiting)
        if wait_s <= 0:
            self._write()
        else:
            self._timer = self._loop.call_later(wait_s, self._write)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_s(self, flight: Flight) -> float:
        return self._pace.wait_s(flight, has_open_tasks=bool(self._notes.memory), now_s=monotonic())

    def _write(self) -> None:
        flight, self._waiting = self._waiting, None
        if flight is None:
            return
        self._stop_timer()
        self._written = flight
        self._pace.begins(monotonic())
        try:
            flight.paid = frozenset(self._paid)
            flight.ledger.close(flight.paid)
            since_s = _lasting_since_s(flight)
            flight.sends = self._notes.unwritten.sends_before(since_s)
            flight.running = self._notes.unwritten.running_before(since_s)
            rows = sqlite_routed.rows_of(flight.ledger, sends=flight.sends, running=flight.running)
            on_end = partial(self._on_written, flight, has_rows=rows.says_something)
            if not self._writes_here(flight.ledger, rows):
                self._pace.goes_to_thread()
                self._writer.start_write(partial(self._write_rows, rows=rows), on_end)
                return
        except Exception as exc:
            self._on_written(flight, exc)
        else:
            flight.is_on_disk = False
            on_end(None)

    def _writes_here(self, ledger: RoutedLedger, rows: RoutedRows) -> bool:
        if not self._pace.is_for_here(rows):
            return False
        slip = sqlite_slips.slip_of(ledger, rows)
        if slip is None and self._slips.are_left():  # they are copied first, which is not done here
            return False
        began_s = monotonic()
        try:
            if slip is None:
                self._writer.write_here(partial(self._write_rows, rows=rows))
            else:
                self._writer.write_here(partial(self._put_down, slip=slip, task_ids=[*ledger.new_tasks]))
                self._slips.add(ledger.new_tasks)
        except Busy:
            return False
        self._pace.took_here(monotonic() - began_s)
        return True

    def _write_rows(self, connection: sqlite3.Connection, rows: RoutedRows) -> None:
        self._look_round(connection)
        sqlite_routed.write(connection, rows)

    def _put_down(self, connection: sqlite3.Connection, slip: bytes, task_ids: Sequence[str]) -> None:
        self._look_round(connection)
        if not sqlite_slips.are_new(connection, task_ids):
            raise _Stale
        sqlite_slips.put_down(connection, slip)

    def _look_round(self, connection: sqlite3.Connection) -> None:
        if sqlite_routed.version_of(connection) != self._notes.data_version:
            raise _Stale

    def _on_written(self, flight: Flight, error: Exception | None, *, has_rows: bool = False) -> None:
        if error is None:
            for batch in flight.batches:  # first: somebody waits for what follows from it
                batch.committed()
            try:
                self._settle(flight, has_rows=has_rows)
            finally:
                self._go_on(flight)
        elif isinstance(error, StoreFull | StoreUnreachable | SettingError):
            self._give_up(error)
        else:
            log.debug("moves_are_decided_again", moves=flight.count, reason=repr(error))
            self._written = None
            self._spoil(flight)

    def _go_on(self, flight: Flight) -> None:
        """The next one leaves before the ends of this one are told: what those bring is decided while the disk is at
        work. Where they wait for the disk, they do so before the next one's, which may be written here and now."""
        if flight.is_on_disk and not self._syncer.is_needed:
            try:
                self._next()
            finally:
                _end_all(flight.batches, None)
        else:
            self._syncer.start(partial(_end_all, flight.batches), is_hurried=flight.is_hurried)
            self._next()

    def _settle(self, flight: Flight, *, has_rows: bool) -> None:
        self._trouble = None
        self._is_sound = self._is_sound or has_rows  # a transaction without any says nothing about the disk
        flight.ledger.settle(now_s=self._pace.began_s)
        self._notes.unwritten.wrote(flight.sends, flight.running)
        if self._notes.unwritten and self._looking is None:
            self._looking = self._loop.call_later(LASTING_S, self._look)
        if self._spoilt:  # they have moved its tasks on
            self._notes.memory.clear()
        self._paid -= flight.paid
        self._settle_paid()

    def _settle_paid(self) -> None:
        """What was paid while it was written down that it is owed."""
        owed = {key for key in self._paid if self._notes.debts.owes(key)}
        self._notes.debts.pay(owed)
        self._paid -= owed

    def _next(self) -> None:
        self._written = None
        if self._spoilt:
            self._spawn(self._write_one_by_one())
            return
        if self._waiting is not None:
            self._schedule()
            return
        self._paid.clear()
        self._is_idle.set()
        if not self._has_grown and self._writer.writes.done >= GROW_AFTER:
            self._has_grown = True
            self._writer.start_growing()

    # --- What could wait, and has -------------------------------------------------------------------------

    def _look(self) -> None:
        """Where nothing else is written that could take it along."""
        self._looking = None
        if self._notes.unwritten and self._last is not None:
            self._looking = self._loop.call_later(LASTING_S, self._look)
            if not self._holding.is_held and self._is_idle.is_set():
                self._new_flight(*self._last)
                self._write()

    async def _write_lasting(self) -> None:
        """All of it. Whoever calls has it alone, among those of this program."""
        for _ in range(TRIES):
            if self._notes.unwritten and self._last is not None:
                self._new_flight(*self._last).takes_all = True
                self._write()
                await self._is_idle.wait()

    # --- When it is not as it was thought -----------------------------------------------------------------

    def _spoil(self, written: Flight | None = None) -> None:
        """What waits cannot be written as it was decided: its tasks are half moved, and so is what is known of them.
        `written`: nor could this, which left before all of those."""
        if not self._spoilt:  # or else what comes is held already, and is let go once
            self._holding.hold()
        self._stop_timer()
        self._spoilt = [each for each in (written, *self._spoilt, self._waiting) if each is not None]
        self._waiting = None
        self._notes.memory.clear()
        if self._written is None:
            self._next()

    def _give_up(self, error: CanoaError) -> None:
        """The store cannot write: all of it must be brought again."""
        self._is_sound = False
        self._trouble = error
        flights = [each for each in (self._written, *self._spoilt, self._waiting) if each is not None]
        has_spoilt = bool(self._spoilt)
        self._waiting, self._spoilt = None, []
        self._stop_timer()
        self._notes.memory.clear()
        for flight in flights:
            flight.choices.take_back_rest(now_ms())
            _end_all(flight.batches, error)
        self._next()
        if has_spoilt:  # nobody decides them again, or holds what comes until then
            self._holding.let_go()

    async def _write_one_by_one(self) -> None:
        """From the rows: so each finds how it is, and what is wrong with one of them is not the others'."""
        flights, self._spoilt = self._spoilt, []
        for flight in flights:
            choices = flight.choices
            choices.begin_again()
            if not flight.batches or flight.sends or flight.running:
                # The version is noted, and slips of others are copied. And what has lasted is written, whoever else
                # writes: one who does so more often than we look would spoil every flight that takes it along.
                since_s = _lasting_since_s(flight)
                await self._decided_again((), choices, paid=(), settings=flight.settings, since_s=since_s)
            for batch in flight.batches:
                again = await self._decided_again(batch.moves, choices, paid=(), settings=flight.settings)
                self._settle_paid()
                _tell_again(batch.hearing, without_sent(again, batch.answers) if isinstance(again, list) else again)
            choices.take_back_rest(now_ms())
        self._next()
        self._holding.let_go()

    async def _rerun(
        self, moves: Sequence[Move], route: Route, *, paid: Sequence[str], settings: StepSettings, hearing: Hearing
    ) -> None:
        """It needs the end before it as it was written. Whoever calls holds what comes."""
        await self._settled()
        choices = SameChoices(route)
        answers = await self._decided_again(moves, choices, paid=paid, settings=settings)
        choices.take_back_rest(now_ms())
        _tell_again(hearing, answers)
        self._holding.let_go()

    async def _decided_again(
        self,
        moves: Sequence[Move],
        choices: SameChoices,
        *,
        paid: Sequence[str],
        settings: StepSettings,
        since_s: float = float("-inf"),
    ) -> list[Moved] | Exception:
        """And written, in one transaction, with what has lasted since then."""
        work = partial(
            sqlite_routed.advance,
            moves=moves,
            paid=paid,
            notes=self._notes,
            route=choices,
            settings=settings,
            since_s=since_s,
        )
        try:
            advanced = await self._writer.write(work, after=partial(sqlite_routed.Advanced.settle, notes=self._notes))
        except Exception as exc:
            choices.begin_again()  # nothing of it is written, and what comes next may ask the same
            return exc
        choices.stand()
        return [moved for each in advanced.ledgers for moved in each.answers()]


def _lasting_since_s(flight: Flight) -> float:
    """What was left out until then is written now."""
    return monotonic() if flight.takes_all else monotonic() - LASTING_S


def _end_all(batches: Sequence[Batch], error: CanoaError | None) -> None:
    for batch in batches:
        batch.end(error)


def _tell_again(hearing: Hearing, answers: list[Moved] | Exception) -> None:
    """They were decided again, and are on disk, or are not."""
    if isinstance(answers, list):
        tell(hearing.on_committed, answers)
    tell(hearing.on_end, answers)
