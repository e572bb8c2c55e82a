"""The outbox of an event loop: written by a thread of its own, whatever comes meanwhile as one group.

A sync of the disk takes from half a millisecond to a tenth of a second: too long for the loop, and as long for a
hundred answers as for one. What the file answers is known here, so that the loop can look without waiting.
Nothing here raises: without a disk the worker goes on as if it had no outbox, and says so.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from canoa.logs import get_logger
from canoa.store.own_thread import OwnThread
from canoa.store.telling import tell
from canoa.worker.outbox import Dropped, Entry, Gone, Kept, Outbox, OutboxLimits, OutboxStats, Waiting
from canoa.worker.outbox_file import OutboxUnusable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = get_logger(__name__)

SAY_EVERY_S: Final = 10.0
REPEAT_AFTER_S: Final = 1.0
FORGET_EVERY_S: Final = 60.0

_Work: TypeAlias = Callable[[Outbox], Any]
_OnEnd: TypeAlias = Callable[[Any], None]
_Op: TypeAlias = tuple[_Work, _OnEnd, Any]
"""What to do, who hears what came of it, and what they hear where the disk does not take it."""


class OutboxWriter:
    """`open` it before use, on the event loop that it belongs to."""

    def __init__(self, path: Path, limits: OutboxLimits) -> None:
        self.stats = OutboxStats()
        self.is_usable = False
        self._path = path
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._thread: OwnThread | None = None
        self._outbox: Outbox | None = None
        self._ops: list[_Op] = []
        self._is_writing = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._known: set[str] = set()
        self._attempts: dict[str, str] = {}  # to the request under which it was answered
        self._trouble = ""
        self._unwritten = 0  # for want of a disk that takes them
        self._unsaid = 0  # dropped since it was last said
        self._saying: asyncio.TimerHandle | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    # --- Life -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """`is_usable` from then on, unless the file cannot be had."""
        thread = OwnThread("canoa-outbox")
        try:
            outbox = await thread.run(partial(Outbox.open, self._path, self._limits))
            known = await thread.run(outbox.known)
        except (OutboxUnusable, sqlite3.Error) as exc:
            thread.end()
            log.error("outbox_unusable", path=str(self._path), reason=str(exc), remedy="this worker runs without one")
            return
        self._thread, self._outbox, self.is_usable = thread, outbox, True
        self._look_at_stats()
        for each in known:
            self._learn(each)
        if self.stats.messages:
            log.info("outbox_waits", path=str(self._path), messages=self.stats.messages, bytes=self.stats.bytes)
        self._forgetting = self._loop.call_later(FORGET_EVERY_S, self._forget)

    async def aclose(self) -> None:
        """All that was put is written first."""
        for timer in (self._saying, self._forgetting):
            if timer is not None:
                timer.cancel()
        self._say()
        if self._thread is None or self._outbox is None:
            return
        while not self._is_idle.is_set():  # whoever hears of an end may put more
            await self._is_idle.wait()
        self.is_usable = False
        thread, self._thread = self._thread, None
        await thread.run(self._outbox.close)
        thread.end()

    # --- What the file answers --------------------------------------------------------------------------

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._known

    def knows(self, request_id: str, attempt: str) -> bool:
        return request_id in self._known or attempt in self._attempts

    def answered_as(self, attempt: str) -> str | None:
        """The request under which this attempt was answered."""
        return self._attempts.get(attempt)

    def _learn(self, what: Gone | Entry) -> None:
        self._known.add(what.request_id)
        if what.attempt:
            self._attempts[what.attempt] = what.request_id

    def _unlearn(self, gone: Sequence[Gone]) -> None:
        for each in gone:
            self._known.discard(each.request_id)
            if self._attempts.get(each.attempt) == each.request_id:
                del self._attempts[each.attempt]

    # --- Writing ----------------------------------------------------------------------------------------

    def put(self, entry: Entry, on_end: Callable[[Kept | Dropped], None]) -> None:
        """`on_end` hears of it once it is on disk, or that it is not."""
        self._do(lambda outbox: outbox.put(entry), partial(self._on_put, entry, on_end), None)

    def _on_put(self, entry: Entry, on_end: Callable[[Kept | Dropped], None], outcome: Kept | Dropped | None) -> None:
        if outcome is None:
            self._unwritten += 1
            self._on_dropped(1)
            on_end(Dropped(why=self._trouble, is_refused=True))
            return
        if isinstance(outcome, Kept):
            self._unlearn(outcome.dropped + outcome.forgotten)
            self._learn(entry)
            self._on_dropped(len(outcome.dropped))
        else:
            self._on_dropped(1)
        on_end(outcome)

    def sent(self, id: int) -> None:
        """Where the disk does not take that, it is said again later; killed before, the answer is sent twice."""
        self._do(partial(_marked, id), partial(self._on_marked, id), False)

    def _on_marked(self, id: int, is_written: bool) -> None:
        if not is_written and self._thread is not None:
            self._loop.call_later(REPEAT_AFTER_S, self.sent, id)

    def drop(self, id: int) -> None:
        """It can never be sent."""
        self._do(lambda outbox: outbox.drop(id), self._on_drop, None)

    def _on_drop(self, gone: Gone | None) -> None:
        if gone is not None:
            self._unlearn([gone])
            self._on_dropped(1)

    def _forget(self) -> None:
        self._do(lambda outbox: outbox.forget(), self._unlearn, ())
        self._forgetting = self._loop.call_later(FORGET_EVERY_S, self._forget)

    # --- Looking ----------------------------------------------------------------------------------------

    def waiting(
        self, on_end: Callable[[list[Waiting]], None], *, limit: int, max_bytes: int, but: frozenset[int]
    ) -> None:
        self._do(lambda outbox: outbox.waiting(limit=limit, max_bytes=max_bytes, but=but), on_end, [])

    def find(self, request_id: str, on_end: Callable[[Entry | None], None]) -> None:
        self._do(lambda outbox: outbox.find(request_id), on_end, None)

    # --- The thread -------------------------------------------------------------------------------------

    def _do(self, work: _Work, on_end: _OnEnd, without: Any) -> None:
        if self._thread is None:
            self._loop.call_soon(on_end, without)
            return
        self._ops.append((work, on_end, without))
        self._is_idle.clear()
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._write)  # what this turn of the loop still brings goes along

    def _write(self) -> None:
        ops, self._ops = self._ops, []
        assert self._thread is not None
        assert self._outbox is not None
        self._thread.start(partial(_done, self._outbox, [work for work, _, _ in ops]), partial(self._on_written, ops))

    def _on_written(self, ops: list[_Op], results: list[Any] | None, error: Exception | None) -> None:
        self._note_trouble(error)
        self._look_at_stats()
        told = [without for _, _, without in ops] if results is None else results
        for (_, on_end, _), result in zip(ops, told, strict=True):
            tell(on_end, result)
        if self._ops:
            self._write()
        else:
            self._is_writing = False
            self._is_idle.set()

    def _look_at_stats(self) -> None:
        of_file = OutboxStats() if self._outbox is None else self._outbox.stats
        self.stats.messages, self.stats.bytes = of_file.messages, of_file.bytes
        self.stats.dropped = of_file.dropped + self._unwritten

    # --- Saying -----------------------------------------------------------------------------------------

    def _note_trouble(self, error: Exception | None) -> None:
        """Said once per trouble, and when it is over."""
        if error is not None and not self._trouble:
            log.error("outbox_not_written", path=str(self._path), reason=str(error))
        elif error is None and self._trouble:
            log.warning("outbox_written_again", path=str(self._path))
        self._trouble = "" if error is None else f"the outbox cannot be written: {error}"

    def _on_dropped(self, count: int) -> None:
        self._look_at_stats()
        self._unsaid += count
        if self._unsaid and self._saying is None:
            self._say()
            self._saying = self._loop.call_later(SAY_EVERY_S, self._said)

    def _said(self) -> None:
        self._saying = None
        self._on_dropped(0)

    def _say(self) -> None:
        if self._unsaid:
            log.warning(
                "outbox_dropped",
                path=str(self._path),
                answers=self._unsaid,
                in_all=self.stats.dropped,
                policy=self._limits.drop.value,
            )
            self._unsaid = 0


def _done(outbox: Outbox, works: Sequence[_Work]) -> list[Any]:
    with outbox.group():
        return [work(outbox) for work in works]


def _marked(id: int, outbox: Outbox) -> bool:
    outbox.sent(id)
    return True
