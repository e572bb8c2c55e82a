"""From the messages that recorders consume to changes for the store. Nothing in a message is trusted: raises
`Undecodable` for what cannot be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.errors import Undecodable, WrongUse
from canoa.execution.outcome import Outcome
from canoa.store.port import Bury, End, Letter, NewTask
from canoa.urn import ACTION_PREFIX, action_name
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire import result, task
from canoa.wire.ids import MAX_ID_BYTES, MAX_ID_CHARS, is_usable_id, made_at_s, made_up_id
from canoa.wire.letter import run_of

if TYPE_CHECKING:
    from canoa.broker.port import Message

MAX_NAME_BYTES: Final = 255
"""Of names that others claim: what fits into a routing key, and into PostgreSQL's indexes (2,704 bytes in all)."""


def new_task(message: Message, now_ms: int) -> NewTask:
    """A submitted message as the task it asks for. What a worker gets answers to the recorders."""
    try:
        action = action_name(message.type or "")
    except WrongUse as exc:
        raise Undecodable(f"a task to keep names no action in its type: {exc}") from exc
    known = task.read(message, action)
    if not is_usable_id(known.id):
        raise Undecodable(
            f"task id {known.id!r:.80} is not 1 to {MAX_ID_CHARS} printable characters, {MAX_ID_BYTES} bytes at most"
        )
    kept = msgspec.structs.replace(message, reply_to=topology.RESULTS, expiration_s=None, persistent=True)
    made_s = made_at_s(known.id)
    submitted_ms = now_ms if made_s is None else min(now_ms, int(made_s * 1000))
    due_ms = None if known.due_s is None else round(known.due_s * 1000)
    return NewTask(
        id=known.id,
        action=action,
        message=kept,
        submitted_ms=submitted_ms,
        due_ms=due_ms,
        reply_to=None if message.reply_to == topology.RESULTS else message.reply_to,
    )


def end(message: Message, now_ms: int) -> End:
    """A worker's answer as the end of its task."""
    headers = message.headers
    task_id = TaskId(message.correlation_id or "")
    try:
        outcome = Outcome(message.type or "")
    except ValueError as exc:
        raise Undecodable(f"a result with type {message.type!r:.40} says nothing about how its task ended") from exc
    if not is_usable_id(task_id):
        raise Undecodable(f"a result names no task in its correlation id, which is {task_id!r:.80}")
    what = None if outcome is Outcome.OK else _failure(message)
    return End(
        task_id=task_id,
        action=ActionName(_name(headers.get(result.ACTION))),
        outcome=outcome,
        result=msgspec.structs.replace(message, headers={}),
        ended_ms=now_ms,
        started_ms=_past_ms(headers.get(result.STARTED), now_ms),
        attempts=_number(headers.get(task.ATTEMPT)) or 1,
        node_id=NodeId(_name(headers.get(result.NODE))),
        error=None if what is None else _said(what),
        traceback="" if what is None else what.traceback,
        run=run_of(message),
    )


def named_task(text: str | None) -> TaskId | None:
    """The task that a message names, if it can be one's id."""
    return TaskId(text) if text is not None and is_usable_id(text) else None


def named_action(value: object) -> ActionName:
    """As it is claimed, also where it is no action's name; empty where nothing is."""
    return ActionName(_name(value).removeprefix(ACTION_PREFIX))


def with_id(message: Message, queue: str) -> Message:
    """With a usable one: its own, or one that is made up."""
    given = message.message_id or ""
    if is_usable_id(given):
        return message
    made_up = made_up_id(queue, given.encode(errors="replace") + message.body)
    return msgspec.structs.replace(message, message_id=made_up)


def letter(message: Message, now_ms: int) -> Bury:
    """A dead letter from the broker. Also of a message that never was a task: a person shall see it."""
    headers = message.headers
    origin = _name(headers.get(result.ORIGIN))
    dead_ms = _past_ms(headers.get(result.DEAD_SINCE), now_ms) or now_ms
    try:
        reason = Outcome(_text(headers.get(result.REASON)))
    except ValueError:
        reason = Outcome.REFUSED
    told = Letter(
        task_id=TaskId(with_id(message, origin).message_id or ""),
        action=ActionName(origin.removeprefix(topology.action_queue_name(""))),
        reason=reason,
        error=_text(headers.get(result.ERROR)),
        traceback=_text(headers.get(result.TRACEBACK)),
        attempts=_number(headers.get(task.ATTEMPT)) or 1,
        node_id=NodeId(_name(headers.get(result.NODE))),
        origin=origin,
        dead_ms=dead_ms,
    )
    return Bury(letter=told, message=message)


def _failure(message: Message) -> result.Failure:
    try:
        return result.failure_from(message)
    except WrongUse:
        return result.failure("it ended with an answer that cannot be read")


def _said(what: result.Failure) -> str:
    return f"{what.error_type}: {what.message}" if what.error_type else what.message


def _text(value: object) -> str:
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else ""


def _name(value: object) -> str:
    return _text(value).encode(errors="replace")[:MAX_NAME_BYTES].decode(errors="ignore")


def _past_ms(value: object, now_ms: int) -> int | None:
    """What is over cannot lie ahead: it would stand first in every list, and outlive its retention."""
    at_ms = _number(value)
    return None if at_ms is None else min(at_ms, now_ms)


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= task.MAX_MS else None
