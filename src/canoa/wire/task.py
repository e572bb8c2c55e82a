"""One request to run an action, as a broker message and back. The pool's wire.

The body is the arguments alone, a JSON or msgpack object keyed by parameter, so that any language can send it.
Everything else is in properties and in headers which are left out while they say nothing new: a first attempt outside
a trace carries none (each costs the broker a tenth of its speed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message
from canoa.errors import Undecodable
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import sapparchi, trace
from canoa.wire.ids import made_at_s

if TYPE_CHECKING:
    from collections.abc import Mapping

SENT: Final = "canoa-sent"  # epoch milliseconds of the submit, for ids that do not tell it
ATTEMPT: Final = "canoa-attempt"  # from 2 on
CRASHES: Final = "canoa-crashes"  # from 1 on
DEADLINE: Final = "canoa-deadline"  # epoch milliseconds: no attempt starts after it
DUE: Final = "canoa-due"  # epoch milliseconds: no attempt starts before it
RETRIES: Final = "canoa-retries"  # when the caller asked for other than the action's own
TIMEOUT: Final = "canoa-timeout"  # milliseconds, likewise
IDEMPOTENCY_KEY: Final = "canoa-idempotency-key"
RUN: Final = "canoa-run"  # of a kept task that was sent again after its end, from 1 on

MAX_COUNT: Final = 2**31 - 1
MAX_MS: Final = 2**53
"""Bounds of what headers may say, so that one more still fits into 64 bits and times stay exact."""

EXPIRATION_MARGIN_S: Final = 60.0
"""The broker's TTL only collects garbage: the worker's and the caller's clocks end a task, and they come first."""


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker knows about one delivery of a task."""

    id: TaskId
    action: ActionName
    message: Message
    attempt: int = 1
    crashes: int = 0
    sent_s: float | None = None
    deadline_s: float | None = None
    due_s: float | None = None
    retries: int | None = None
    timeout_s: float | None = None
    idempotency_key: str | None = None
    run: int = 0
    started_s: float | None = None  # this attempt, where somebody wants to know

    @property
    def is_kept(self) -> bool:
        """Its result goes to a store: the recorders are its caller."""
        return self.message.reply_to == topology.RESULTS

    @property
    def told_id(self) -> TaskId:
        """What people know it by. The id of a routed step is one attempt's, and its task's stands in a header."""
        told = self.message.headers.get(sapparchi.TASK)
        return TaskId(told) if told and isinstance(told, str) else self.id

    def trace_headers(self) -> Mapping[str, HeaderValue]:
        """A task submitted outside any trace starts one, under its own id; nothing needs to be sent to say so."""
        headers = self.message.headers
        return headers if trace.TRACEPARENT in headers else {trace.TRACEPARENT: f"00-{self.id}-{self.id[16:]}-01"}

    def trace(self) -> trace.TraceContext | None:
        return trace.from_headers(self.trace_headers())


def new_headers() -> dict[str, HeaderValue]:
    """The headers of a first attempt: none, outside a trace. The id tells when it was submitted."""
    context = trace.current()
    return {} if context is None else trace.to_headers(context)


def read(message: Message, action: ActionName) -> Task:
    """Raises `Undecodable` for headers that are not what they should be. A task from elsewhere needs only an id."""
    if not message.message_id:
        raise Undecodable("the task has no message_id; send one, unique per task")
    headers = message.headers
    task_id = TaskId(message.message_id)
    if not headers:
        return Task(id=task_id, action=action, message=message, sent_s=made_at_s(task_id))
    known: dict[str, Any] = {"sent_s": made_at_s(task_id)}
    if SENT in headers:
        known["sent_s"] = _integer(headers, SENT, 0, MAX_MS) / 1000
    if ATTEMPT in headers:
        known["attempt"] = _integer(headers, ATTEMPT, 1, MAX_COUNT)
    if CRASHES in headers:
        known["crashes"] = _integer(headers, CRASHES, 0, MAX_COUNT)
    if DEADLINE in headers:
        known["deadline_s"] = _integer(headers, DEADLINE, 0, MAX_MS) / 1000
    if DUE in headers:
        known["due_s"] = _integer(headers, DUE, 0, MAX_MS) / 1000
    if RETRIES in headers:
        known["retries"] = _integer(headers, RETRIES, 0, MAX_COUNT)
    if TIMEOUT in headers:
        known["timeout_s"] = _integer(headers, TIMEOUT, 1, MAX_MS) / 1000
    if IDEMPOTENCY_KEY in headers:
        known["idempotency_key"] = _text(headers, IDEMPOTENCY_KEY)
    if RUN in headers:
        known["run"] = _integer(headers, RUN, 0, MAX_COUNT)
    return Task(id=task_id, action=action, message=message, **known)


def _integer(headers: Any, name: str, least: int, most: int) -> int:
    value = headers[name]
    if type(value) is not int or not least <= value <= most:
        raise Undecodable(f"header {name} is {value!r:.100}; it must be an integer from {least} to {most}")
    return value


def _text(headers: Any, name: str) -> str:
    value = headers[name]
    if not isinstance(value, str):
        raise Undecodable(f"header {name} is {value!r:.100}; it must be text")
    return value


def again(message: Message, **changed: HeaderValue) -> Message:
    """The same task with other headers (`attempt`, `crashes`): for a retry, or a count."""
    names = {"attempt": ATTEMPT, "crashes": CRASHES}
    headers = {**_own(message.headers), **{names[key]: value for key, value in changed.items()}}
    return msgspec.structs.replace(message, headers=headers)


def _own(headers: Any) -> dict[str, HeaderValue]:
    """Without the broker's notes on earlier journeys, which would grow with every retry."""
    return {name: value for name, value in headers.items() if not name.startswith("x-")}
