"""What Canoa needs from a database: tasks and how they ended, dead letters, an outbox, leases and limits.

The words and the promises live here. `sqlite.py` keeps them in a file, `postgres.py` on a server;
`tests/contract/store/` holds both to them. Times are epoch milliseconds, by the clock of whoever asks. Clocks jump:
what is held for more than twice the time that is asked for was taken by a clock that has gone back since, and is free.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from canoa.broker.port import Message, Publication
from canoa.execution.outcome import Outcome
from canoa.vocabulary import ActionName, NodeId, TaskId

if TYPE_CHECKING:
    from collections.abc import Sequence

# --- What is kept -----------------------------------------------------------------------------------


class State(enum.StrEnum):
    """Where a kept task stands."""

    WAITING = "waiting"  # accepted; as far as is known it has not started
    RUNNING = "running"  # a worker reported progress
    ENDED = "ended"


class NewTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task as it is accepted. `message` is what a worker gets, and gets again should it be lost on the way."""

    id: TaskId
    action: ActionName
    message: Message
    submitted_ms: int
    due_ms: int | None = None  # not to start before
    reply_to: str | None = None  # the queue that hears how it ended; several have a space between


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one task, without its arguments and its result."""

    id: TaskId
    action: ActionName
    state: State
    submitted_ms: int
    due_ms: int | None = None
    started_ms: int | None = None  # the attempt that ended it, or that reported progress last
    ended_ms: int | None = None
    outcome: Outcome | None = None
    attempts: int = 0
    node_id: NodeId | None = None
    error: str | None = None
    progress: float | None = None  # 0 to 1
    progress_text: str | None = None
    run: int = 0  # how often it was sent again after its end


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: a task that ended badly and waits for a person."""

    task_id: TaskId
    action: ActionName
    reason: Outcome
    error: str
    traceback: str
    attempts: int
    node_id: NodeId | None
    origin: str  # the queue it came from, and goes back to
    dead_ms: int
    redriven_ms: int | None = None


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that must be published, and is until `Sent` says it was."""

    seq: int
    publication: Publication


# --- Changes: what `apply` takes, and what each of them answers ---------------------------------------


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a new task; with `outbox`, also the duty to publish that.

    Answers `Accepted`: new, known and waiting (its `reply_to` is then added to those who hear of its end, of whom the
    last 50 do), or ended.
    """

    task: NewTask
    outbox: Publication | None = None


class Accepted(msgspec.Struct, frozen=True):
    is_new: bool
    is_ended: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Keep how a task ended, unless it has ended already or `run` is not its current one: the first result wins.

    Also for a task the store never saw. With an `outcome` in `BURIED`, and the task's message at hand, it leaves a dead
    letter as well. Answers `Ended`.
    """

    task_id: TaskId
    action: ActionName
    outcome: Outcome
    result: Message  # as it goes to whoever waits
    ended_ms: int
    started_ms: int | None = None
    attempts: int = 1
    node_id: NodeId | None = None
    error: str | None = None
    traceback: str = ""
    run: int = 0


BURIED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.REFUSED, Outcome.POISONED, Outcome.EXPIRED})


class Ended(msgspec.Struct, frozen=True):
    """`is_first`: this very change ended it. `reply_to`: the queues of those who wait for it, also when it had ended
    before (whoever ended it may have died before he told them); none for another run than the current one."""

    is_first: bool
    reply_to: tuple[str, ...] = ()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a task is. Nothing once it has ended, and nothing from an earlier attempt. Answers None."""

    task_id: TaskId
    at_ms: int
    fraction: float | None
    text: str | None
    attempt: int = 1
    node_id: NodeId | None = None


class Bury(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a dead letter. The same one again, an older one, and one of a task whose message the store keeps (its `End`
    makes the letter) change nothing. Answers whether it was kept."""

    letter: Letter
    message: Message


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    """Send a dead letter's task again: marks the letter, opens the task anew as its next `run` (keeps it from now on,
    where it did not), and puts it into the outbox, all or nothing. Answers whether it did: a letter is redriven once,
    until its task dies again, not while its task is open, and never when it came from nowhere (no `origin`)."""

    task_id: TaskId
    now_ms: int


class Owe(msgspec.Struct, frozen=True, kw_only=True):
    """Put a task that has not ended into the outbox: the broker that had it forgot it. Answers whether it did."""

    task_id: TaskId
    publication: Publication


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The broker has it: take it out of the outbox. Answers None."""

    seq: int


Change: TypeAlias = Accept | End | Progress | Bury | Redrive | Owe | Sent
Answer: TypeAlias = Accepted | Ended | bool | None


# --- Asking -------------------------------------------------------------------------------------------


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """None: any."""

    action: ActionName | None = None
    state: State | None = None
    outcome: Outcome | None = None


class Cursor(msgspec.Struct, frozen=True):
    """Where a page ends; the next one starts behind it."""

    at_ms: int
    id: TaskId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to act until `expires_ms`. `epoch` grows with every new owner, so that a late one can be told."""

    name: str
    owner: str
    epoch: int
    expires_ms: int


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long what has ended is kept."""

    task_s: float = 7 * 86_400.0  # ended tasks with their results; longer lets callers come back later
    payload_s: float = 86_400.0  # their arguments; needed only to send them again
    letter_s: float = 30 * 86_400.0  # dead letters, also the redriven ones


class Writes(msgspec.Struct):
    """Transactions of one program. `repeated`: begun anew, since another program had changed the same rows."""

    done: int = 0
    repeated: int = 0


class Store(Protocol):
    """One program's access to one store. Safe for one event loop, and beside other programs' access.

    Raises `StoreUnreachable` (nothing is known to have changed: repeat it, changes are idempotent), `StoreFull`
    (nothing changed), `WrongUse` itself (a change says what this store can never keep: the same batch will fail again,
    the others of it will not), `StoreTooNew` and `SettingError` (from `open`).
    """

    async def open(self) -> None:
        """Reach it, and bring its schema up to date under a lock: of several programs that start, one migrates."""

    async def aclose(self) -> None:
        """Closing twice is allowed."""

    async def apply(self, changes: Sequence[Change]) -> list[Answer]:
        """All of them in one transaction, in order, on disk when it returns; one answer each. All or nothing."""

    async def task(self, task_id: TaskId) -> TaskRow | None: ...

    async def result(self, task_id: TaskId) -> Message | None:
        """What a caller would have got; None while there is none, or its time is over."""

    async def tasks(self, wanted: TaskFilter, *, limit: int, before: Cursor | None = None) -> list[TaskRow]:
        """The newest first, by `submitted_ms` and id."""

    async def unfinished(
        self, *, limit: int, after: Cursor | None = None, without_outbox: bool = False
    ) -> list[NewTask]:
        """Tasks that have not ended, the oldest first: what a memory broker has forgotten. `without_outbox`: leave out
        those that are in there, and so will be published anyway."""

    async def letters(
        self, *, limit: int, action: ActionName | None = None, before: Cursor | None = None
    ) -> list[Letter]:
        """Those that wait (redriven ones do not), the newest first, by `dead_ms` and id."""

    async def letter(self, task_id: TaskId) -> Letter | None: ...

    async def take_outbox(self, *, now_ms: int, limit: int, for_ms: int) -> list[OutboxRow]:
        """The oldest that nobody holds; nobody else gets them within `for_ms`, unless `Sent` comes first. A hold that
        ends more than twice `for_ms` from now is none: the clock has gone back since."""

    async def lease(self, name: str, owner: str, *, now_ms: int, for_ms: int) -> Lease | None:
        """Take it, or renew it (same epoch); None while another owner's has not expired. All who ask
        for one name ask for about the same time: an expiry more than twice `for_ms` from now is not believed."""

    async def release(self, name: str, owner: str) -> None: ...

    async def holder(self, name: str) -> Lease | None:
        """As it was taken or renewed last, also when it has expired; released: its `owner` is empty. None: never."""

    async def reserve(self, key: str, *, count: int, per_ms: float, burst: int, now_ms: int, within_ms: int) -> int:
        """Room for `count` starts under a rate of one per `per_ms`, with at most `burst` at once after a pause: the
        time at which the first may start (the others follow `per_ms` apart), or -1 when that would be later than
        `within_ms` from now: then nothing is reserved. After a pause the time lies in the past, by what the burst
        allows: the k-th may start at `max(now_ms, first + k * per_ms)`. What was reserved further ahead than anybody
        asks for is not believed: see `execution/gcra.py`."""

    async def take_slot(self, key: str, holder: str, *, limit: int, now_ms: int, for_ms: int) -> bool:
        """One of `limit` places under `key`, for `for_ms`; renews the holder's own. One that another holds for more
        than twice `for_ms` from now is free."""

    async def free_slots(self, holders: Sequence[tuple[str, str]]) -> None:
        """Give back (key, holder) pairs."""

    async def forget(self, retention: Retention, *, now_ms: int, limit: int) -> int:
        """Remove at most about `limit` rows whose time is over; say how many. Less than `limit`: all done.

        No task and no letter while `now_ms` is more than `retention.QUIET_MS` past all that is known to have happened:
        then the clock jumped ahead, or nothing happens and there is no hurry."""
