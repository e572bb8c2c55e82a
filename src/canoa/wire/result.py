"""How a task ended, as the message that goes back to its caller, and what a dead letter says.

`type` says how it ended; the body is the result itself, or a `Failure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa import errors
from canoa.broker.port import HeaderValue, Message
from canoa.execution.outcome import Outcome
from canoa.wire import task as task_wire
from canoa.wire.codec import Codec, ContentType

if TYPE_CHECKING:
    from canoa.vocabulary import TaskId
    from canoa.wire.task import Task

REASON: Final = "canoa-reason"
ERROR: Final = "canoa-error"
NODE: Final = "canoa-node"
DEAD_SINCE: Final = "canoa-dead-since"  # epoch milliseconds
ORIGIN: Final = "canoa-origin"  # the queue it came from, and goes back to when it is sent again
TRACEBACK: Final = "canoa-traceback"
ACTION: Final = "canoa-action"
STARTED: Final = "canoa-started"  # epoch milliseconds

_OK: Final = Outcome.OK.value

MAX_ERROR_CHARS: Final = 2_000
MAX_TRACEBACK_CHARS: Final = 8_000


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, in the worker's words. Travels as JSON."""

    message: str
    error_type: str = ""
    attempts: int = 1
    traceback: str = ""


_failures = Codec[Failure](Failure)


def failure(message: str, *, error_type: str = "", attempts: int = 1, traceback: str = "") -> Failure:
    """Bounded: an exception's text can be as long as its author likes. A traceback's end says most."""
    return Failure(
        message=message[:MAX_ERROR_CHARS],
        error_type=error_type[:200],
        attempts=attempts,
        traceback=traceback[-MAX_TRACEBACK_CHARS:],
    )


def success_message(
    task_id: TaskId, body: bytes, content_type: str, content_encoding: str | None, *, persistent: bool = True
) -> Message:
    """`persistent`: as the task was. A caller who keeps his task need not find its result on disk."""
    return Message(
        persistent=persistent,
        body=body,
        content_type=content_type,
        content_encoding=content_encoding,
        correlation_id=task_id,
        message_id=task_id,
        type=_OK,
    )


def failure_message(task_id: TaskId, outcome: Outcome, what: Failure, *, persistent: bool = True) -> Message:
    return Message(
        persistent=persistent,
        body=_failures.encode(what),
        content_type=ContentType.JSON.value,
        correlation_id=task_id,
        message_id=task_id,
        type=outcome.value,
    )


def for_the_record(answer: Message, known: Task, node: str) -> Message:
    """The same answer with what a recorder wants to know besides: who ran it, when, and which run it was."""
    headers: dict[str, HeaderValue] = {ACTION: known.action, NODE: node, task_wire.ATTEMPT: known.attempt}
    if known.started_s is not None:
        headers[STARTED] = int(known.started_s * 1000)
    if known.run:
        headers[task_wire.RUN] = known.run
    return msgspec.structs.replace(answer, headers=headers)


def dead_letter(task: Message, *, reason: Outcome, what: Failure, node: str, origin: str, now_s: float) -> Message:
    """The task as it was, with why and where it ended. Without a TTL: it waits for a person."""
    headers: dict[str, HeaderValue] = {
        **{name: value for name, value in task.headers.items() if not name.startswith("x-")},
        REASON: reason.value,
        ERROR: f"{what.error_type}: {what.message}" if what.error_type else what.message,
        NODE: node,
        ORIGIN: origin,
        DEAD_SINCE: int(now_s * 1000),
    }
    if what.traceback:
        headers[TRACEBACK] = what.traceback
    return msgspec.structs.replace(task, headers=headers, expiration_s=None, persistent=True)


def failure_from(message: Message) -> Failure:
    """Raises `WrongUse` for what is none."""
    return _failures.decode(message.body, message.content_type)


def error_from(message: Message, task_id: TaskId) -> errors.TaskEnded:
    """The exception a caller gets for a result that is not a success."""
    try:
        what = failure_from(message)
    except errors.WrongUse as exc:
        return errors.TaskRefused(f"task {task_id} ended with an answer that cannot be read: {exc}", task_id=task_id)
    return ended_error(message.type or "", task_id, what)


def ended_error(outcome: str, task_id: TaskId, what: Failure) -> errors.TaskEnded:
    """The exception for a task that ended with this outcome."""
    kinds: dict[str, type[errors.TaskEnded]] = {
        Outcome.TIMED_OUT: errors.ActionTimedOut,
        Outcome.CANCELLED: errors.TaskCancelled,
        Outcome.EXPIRED: errors.TaskExpired,
        Outcome.POISONED: errors.TaskPoisoned,
        Outcome.REFUSED: errors.TaskRefused,
    }
    kind: Any = kinds.get(outcome)
    if kind is not None:
        return kind(what.message, task_id=task_id)  # type: ignore[no-any-return]
    failed = errors.ActionFailed(
        f"{what.error_type}: {what.message}" if what.error_type else what.message,
        task_id=task_id,
        error_type=what.error_type,
        attempts=what.attempts,
        remote_traceback=what.traceback,
    )
    if what.traceback:
        failed.add_note(f"In the worker:\n{what.traceback.rstrip()}")
    return failed
