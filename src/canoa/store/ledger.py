"""What a batch of changes does to the rows it touches, and what each change answers. Pure: no database, no clock.

An adapter loads the rows that `needs_of` names, under a lock; a `Ledger` over them takes the changes in order; the
adapter then writes the rows as they stand at the end. So both adapters decide alike, also within one batch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from canoa.broker import topology
from canoa.store.packing import pack, plain, plain_or_none, unpack_message
from canoa.store.port import (
    BURIED,
    Accept,
    Accepted,
    Answer,
    Bury,
    Change,
    End,
    Ended,
    NewTask,
    Owe,
    Progress,
    Redrive,
    Sent,
    State,
)
from canoa.vocabulary import TaskId
from canoa.wire.ids import made_at_s
from canoa.wire.letter import redriven, run_of
from canoa.wire.task import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_WAITING = State.WAITING.value
_RUNNING = State.RUNNING.value
OPEN = frozenset({_WAITING, _RUNNING})
"""The standings of tasks that have not ended."""

MAX_WAITERS: Final = 50
"""Queues that hear of one task's end. The first ones are left out: of a key that is used for days they are gone."""

_BURIED = frozenset(outcome.value for outcome in BURIED)


class TaskRecord(msgspec.Struct, gc=False):
    """A row of `tasks`, in the order of its columns. Of a loaded one the blobs are not known, only `has_message`."""

    id: str
    action: str
    standing: str
    submitted_ms: int
    due_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    node_id: str | None = None
    error: str | None = None
    progress: float | None = None
    progress_text: str | None = None
    run: int = 0
    plan: str | None = None
    reply_to: str = ""
    message: bytes | None = None
    result: bytes | None = None
    has_message: bool = False


class LetterRecord(msgspec.Struct, gc=False):
    """A row of `letters`, in the order of its columns."""

    task_id: str
    action: str
    reason: str
    error: str
    traceback: str
    attempts: int
    node_id: str | None
    origin: str
    dead_ms: int
    redriven_ms: int | None
    message: bytes


class Needs(msgspec.Struct):
    """What must be known before the changes can be taken: rows by task id. `messages`: with that blob."""

    tasks: dict[str, None] = {}  # a set that keeps the order
    messages: dict[str, None] = {}
    letters: dict[str, None] = {}


def needs_of(changes: Iterable[Change]) -> Needs:
    needs = Needs()
    for change in changes:
        match change:
            case Accept():
                needs.tasks[plain(change.task.id)] = None
            case End():
                needs.tasks[plain(change.task_id)] = None
                if change.outcome.value in _BURIED:
                    needs.messages[plain(change.task_id)] = needs.letters[plain(change.task_id)] = None
            case Progress() | Owe():
                needs.tasks[plain(change.task_id)] = None
            case Bury():
                needs.tasks[plain(change.letter.task_id)] = needs.letters[plain(change.letter.task_id)] = None
            case Redrive():
                needs.tasks[plain(change.task_id)] = needs.letters[plain(change.task_id)] = None
            case Sent():
                pass
            case _:
                assert_never(change)
    return needs


class Ledger:
    """Takes changes one after the other. What must be written afterwards is in the attributes."""

    def __init__(self, tasks: Iterable[TaskRecord], letters: Iterable[LetterRecord]) -> None:
        self._tasks = {task.id: task for task in tasks}
        self._letters = {letter.task_id: letter for letter in letters}
        self._known_letters = frozenset(self._letters)
        self._touched: dict[str, TaskRecord] = {}
        self._new: dict[str, TaskRecord] = {}
        self._with_message: set[str] = set()
        self._with_result: set[str] = set()
        self.letters: dict[str, LetterRecord] = {}  # to insert or replace, by task
        self.outbox: list[tuple[str, bytes]] = []  # task id, publication
        self.sent: list[int] = []  # to delete from the outbox

    @property
    def new_tasks(self) -> Iterable[TaskRecord]:
        """To insert."""
        return self._new.values()

    @property
    def new_letters(self) -> list[LetterRecord]:
        """Those of `letters` that are not there yet."""
        return [letter for task_id, letter in self.letters.items() if task_id not in self._known_letters]

    @property
    def changed_letters(self) -> list[LetterRecord]:
        """The others."""
        return [letter for task_id, letter in self.letters.items() if task_id in self._known_letters]

    def updated_tasks(self, *, with_message: bool, with_result: bool) -> list[TaskRecord]:
        """To update: those of which exactly these blobs have changed, besides the other columns."""
        return [
            task
            for task_id, task in self._touched.items()
            if (task_id in self._with_message) is with_message and (task_id in self._with_result) is with_result
        ]

    def take(self, changes: Sequence[Change]) -> list[Answer]:
        return [self._take(change) for change in changes]

    def _take(self, change: Change) -> Answer:
        match change:
            case Accept():
                return self._accept(change)
            case End():
                return self._end(change)
            case Progress():
                return self._progress(change)
            case Bury():
                return self._bury(change)
            case Redrive():
                return self._redrive(change)
            case Owe():
                return self._owe(change)
            case Sent():
                self.sent.append(change.seq)
                return None
            case _:
                assert_never(change)

    # --- One change ---------------------------------------------------------------------------------

    def _accept(self, change: Accept) -> Accepted:
        known = self._tasks.get(plain(change.task.id))
        if known is None:
            task = accepted_record(change.task)
            self._add(task)
            if change.outbox is not None:
                self.outbox.append((task.id, pack(change.outbox)))
            return Accepted(is_new=True)
        if known.standing not in OPEN:
            return Accepted(is_new=False, is_ended=True)
        heard = with_names(known.reply_to, change.task.reply_to)
        if heard != known.reply_to:
            known.reply_to = heard
            self._touch(known)
        return Accepted(is_new=False)

    def _end(self, change: End) -> Ended:
        task = self._tasks.get(plain(change.task_id))
        if task is None:
            task = _never_seen(change)
            self._add(task)
        elif task.run != change.run or task.plan is not None:  # of a routed task, managers alone write the end
            return Ended(is_first=False)
        elif task.standing not in OPEN:
            return Ended(is_first=False, reply_to=tuple(task.reply_to.split()))
        close(task, change)
        self._touch(task, with_result=True)
        if change.outcome.value in _BURIED and task.message is not None:
            self.letters[task.id] = self._letters[task.id] = _letter_of(task, task.message, change)
        return Ended(is_first=True, reply_to=tuple(task.reply_to.split()))

    def _progress(self, change: Progress) -> Answer:
        task = self._tasks.get(plain(change.task_id))
        attempt = _count(change.attempt)
        if task is None or task.standing not in OPEN or attempt < task.attempts:
            return None
        if attempt > task.attempts or task.started_ms is None:
            task.started_ms = change.at_ms
        task.standing = _RUNNING
        task.attempts = attempt
        task.node_id = plain_or_none(change.node_id)
        task.progress = _fraction(change.fraction)
        task.progress_text = plain_or_none(change.text)
        self._touch(task)
        return None

    def _bury(self, change: Bury) -> bool:
        letter, task_id = change.letter, plain(change.letter.task_id)
        task, known = self._tasks.get(task_id), self._letters.get(task_id)
        if known is not None and (task is not None or known.dead_ms >= letter.dead_ms):
            return False
        if task is not None and task.has_message:
            return False
        self.letters[task_id] = self._letters[task_id] = LetterRecord(
            task_id,
            plain(letter.action),
            letter.reason.value,
            plain(letter.error),
            plain(letter.traceback),
            _count(letter.attempts),
            plain_or_none(letter.node_id),
            plain(letter.origin),
            letter.dead_ms,
            None,
            pack(change.message),
        )
        return True

    def _redrive(self, change: Redrive) -> bool:
        task_id = TaskId(plain(change.task_id))
        letter, task = self._letters.get(task_id), self._tasks.get(task_id)
        if letter is None or letter.redriven_ms is not None or (task is not None and task.standing in OPEN):
            return False
        if not letter.origin:  # nobody knows where it came from
            return False
        dead = unpack_message(letter.message)
        run = 1 + max(run_of(dead), task.run if task is not None else 0)
        publication = redriven(dead, task_id=task_id, run=run, origin=letter.origin)
        if task is None:
            task = _unkept(letter)
            self._add(task)
        reopen(task, run=run)
        task.message, task.has_message = pack(publication.message), True
        self._touch(task, with_message=True, with_result=True)
        letter.redriven_ms = change.now_ms
        self.letters[letter.task_id] = letter
        self.outbox.append((task.id, pack(publication)))
        return True

    def _owe(self, change: Owe) -> bool:
        task = self._tasks.get(plain(change.task_id))
        if task is None or task.standing not in OPEN or task.plan is not None:
            return False
        self.outbox.append((task.id, pack(change.publication)))
        return True

    # --- Bookkeeping --------------------------------------------------------------------------------

    def _add(self, task: TaskRecord) -> None:
        self._tasks[task.id] = self._new[task.id] = task

    def _touch(self, task: TaskRecord, *, with_message: bool = False, with_result: bool = False) -> None:
        if task.id in self._new:
            return  # it is inserted with all it has
        self._touched[task.id] = task
        if with_message:
            self._with_message.add(task.id)
        if with_result:
            self._with_result.add(task.id)


# --- Rows as they begin, end and begin again ------------------------------------------------------------


def accepted_record(task: NewTask) -> TaskRecord:
    """Of a task that is new here."""
    return TaskRecord(
        id=plain(task.id),
        action=plain(task.action),
        standing=_WAITING,
        submitted_ms=task.submitted_ms,
        due_ms=task.due_ms,
        run=run_of(task.message) if task.message.headers else 0,
        reply_to=with_names("", task.reply_to),
        message=pack(task.message),
        has_message=True,
    )


def _never_seen(change: End) -> TaskRecord:
    """A task that ended without having been accepted here."""
    return TaskRecord(
        id=plain(change.task_id),
        action=plain(change.action),
        standing=_WAITING,
        submitted_ms=_submitted_ms(change.task_id, otherwise_ms=change.started_ms or change.ended_ms),
        run=change.run,
    )


def _unkept(letter: LetterRecord) -> TaskRecord:
    """A task of which only its dead letter is known."""
    return TaskRecord(
        id=letter.task_id,
        action=letter.action,
        standing=_WAITING,
        submitted_ms=_submitted_ms(letter.task_id, otherwise_ms=letter.dead_ms),
    )


def close(task: TaskRecord, change: End) -> None:
    """As it ended."""
    task.standing = change.outcome.value
    task.started_ms = change.started_ms
    task.ended_ms = change.ended_ms
    task.attempts = _count(change.attempts)
    task.node_id = plain_or_none(change.node_id)
    task.error = plain_or_none(change.error)
    task.result = pack(change.result)


def reopen(task: TaskRecord, *, run: int) -> None:
    """As it was when accepted. Those who wait for it stay: hearing of it twice is harmless, never would not be."""
    task.standing = _WAITING
    task.run = run
    task.result = None
    task.due_ms = task.started_ms = task.ended_ms = None
    task.attempts = 0
    task.node_id = task.error = task.progress = task.progress_text = None


def _letter_of(task: TaskRecord, message: bytes, change: End) -> LetterRecord:
    return LetterRecord(
        task.id,
        task.action,
        change.outcome.value,
        task.error or "",
        plain(change.traceback),
        task.attempts,
        task.node_id,
        topology.action_queue_name(task.action),
        change.ended_ms,
        None,
        message,
    )


# --- Values ---------------------------------------------------------------------------------------------


def with_names(names: str, more: str | None) -> str:
    """Queue names with a space between, each once, in the order they came; the last ones, where they are many."""
    if not more:
        return names
    added = plain(more).split()
    if not names and len(added) == 1:  # as almost always
        return added[0]
    each_once = dict.fromkeys([*names.split(), *added])
    return " ".join([*each_once][-MAX_WAITERS:])


def _submitted_ms(task_id: str, *, otherwise_ms: int) -> int:
    made_s = made_at_s(TaskId(task_id))
    return otherwise_ms if made_s is None else round(made_s * 1000)


def _count(value: int) -> int:
    """What anybody may claim over the wire must not fail the whole batch."""
    return min(MAX_COUNT, max(0, value))


def _fraction(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else min(1.0, max(0.0, value))
