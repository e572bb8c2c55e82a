"""From a request's message to the task and the plan that it asks for. Pure; nothing in a message is trusted.

A request names its plan in one of four ways: with it (a header of Canoa's, or `task_plan`), as a list of actions, or by
the name under which it is registered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.broker.port import HeaderValue, Message
from canoa.errors import PayloadTooLarge, PlanRefused, Undecodable
from canoa.execution.placement import MAX_SITE_CHARS
from canoa.execution.plan import Plan, seen_from
from canoa.execution.plan_checks import checked
from canoa.execution.plan_inputs import sound
from canoa.execution.plan_reading import from_actions, from_task_plan
from canoa.manager.reading import envelope, part, text
from canoa.store.port import NewTask
from canoa.store.routed_port import Begin
from canoa.urn import task_name
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import sapparchi, task, trace
from canoa.wire.codec import ContentType
from canoa.wire.ids import MAX_ID_BYTES, MAX_ID_CHARS, is_usable_id, made_at_s
from canoa.wire.nesting import json_is_too_deep

if TYPE_CHECKING:
    from canoa.wire.sapparchi import TaskRequest

MAX_AGE_MS: Final = 86_400_000
"""A request that claims to be older has its time from another clock, or in another unit."""

PLANS: Final = 256
"""How many are remembered by how they were written: whoever sends one task mostly sends many of its kind."""

_JSON: Final = ContentType.JSON.value
_plans = msgspec.json.Decoder(Plan)


class _Identified(msgspec.Struct):
    """The least of a request."""

    id: Any = None


_ids = msgspec.json.Decoder(_Identified)


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What could be read. `plan` None: the one registered as `plan_name`."""

    task: NewTask
    plan: Plan | None
    plan_name: str
    site: str = ""  # of its caller


def read(message: Message, now_ms: int, *, limit_bytes: int) -> Request:
    """Raises `Undecodable`, `PayloadTooLarge` and `PlanRefused`."""
    request = sapparchi.decode(envelope(message, limit_bytes), sapparchi.TaskRequest)
    if not is_usable_id(request.id):
        raise Undecodable(
            f"id {request.id!r:.80} is not 1 to {MAX_ID_CHARS} printable characters, {MAX_ID_BYTES} bytes at most"
        )
    site = _site(message)
    plan = _plan(message, request, site)
    name = task_name(request.task_id) if plan is None else plan.name
    return Request(task=_task(message, request, name, now_ms, limit_bytes), plan=plan, plan_name=name, site=site)


def readable_id(message: Message, limit_bytes: int) -> str:
    """Of a request that cannot be read as a whole: as its body says, or its message; empty where neither does."""
    said = part(message, _ids, limit_bytes=limit_bytes)
    in_body = str(said.id) if said is not None and type(said.id) in (str, int) else ""
    return next((each for each in (in_body, message.message_id or "") if is_usable_id(each)), "")


def begin(request: Request, plan: Plan, now_ms: int) -> Begin:
    return Begin(task=request.task, plan=seen_from(plan, request.site), now_ms=now_ms)


def _task(message: Message, request: TaskRequest, name: str, now_ms: int, limit_bytes: int) -> NewTask:
    kept = Message(
        body=_input(request.message_data, limit_bytes),
        content_type=_JSON,
        headers=_kept_headers(message),
        message_id=request.id,
        type=name,
    )
    return NewTask(
        id=TaskId(request.id),
        action=ActionName(name),
        message=kept,
        submitted_ms=_submitted_ms(request, now_ms),
        reply_to=text(message.reply_to) or None,
    )


def _input(data: str, limit_bytes: int) -> bytes:
    body = sound(data)
    if len(body) > limit_bytes:
        raise PayloadTooLarge("message_data", len(body), limit_bytes)
    return body


def _kept_headers(message: Message) -> dict[str, HeaderValue]:
    if not message.headers:
        return {}
    context = trace.from_headers(message.headers)
    kept: dict[str, HeaderValue] = {} if context is None else trace.to_headers(context)
    if task.DEADLINE in message.headers:
        kept[task.DEADLINE] = _deadline_ms(message.headers[task.DEADLINE])
    return kept


def _deadline_ms(value: HeaderValue) -> int:
    if type(value) is not int or not 0 <= value <= task.MAX_MS:
        raise Undecodable(f"header {task.DEADLINE} is {value!r:.100}; it must be epoch milliseconds")
    return value


def _submitted_ms(request: TaskRequest, now_ms: int) -> int:
    """By the id, or as the request says, if that can be."""
    made_s = made_at_s(TaskId(request.id))
    claimed_ms = request.created_at if made_s is None else made_s * 1000
    if not isinstance(claimed_ms, int | float) or not now_ms - MAX_AGE_MS < claimed_ms <= now_ms:
        return now_ms
    return int(claimed_ms)


def _site(message: Message) -> str:
    """Canoa's own, so what is wrong with it is not worth a refusal."""
    said = message.headers.get(sapparchi.SITE)
    return said if isinstance(said, str) and len(said) <= MAX_SITE_CHARS and said.isprintable() else ""


# --- Its plan -------------------------------------------------------------------------------------------


def _plan(message: Message, request: TaskRequest, site: str) -> Plan | None:
    if sapparchi.PLAN in message.headers:
        return _plan_in_header(message.headers[sapparchi.PLAN], site)
    if request.task_plan is not None:
        return from_task_plan(request.task_id, request.task_plan)
    if request.target_actions:
        return _plan_of_actions(request.task_id, tuple(request.target_actions), site)
    if not request.task_id:
        raise PlanRefused("the request names no plan; give it target_actions, a task_plan or a registered task_id")
    return None


def _plan_in_header(value: HeaderValue, site: str) -> Plan:
    if not isinstance(value, str):
        raise Undecodable(f"header {sapparchi.PLAN} is no text; send the plan as JSON")
    return _packed_plan(value, site)


@lru_cache(PLANS)
def _packed_plan(packed: str, site: str) -> Plan:
    if json_is_too_deep(packed.encode(errors="replace")):
        raise Undecodable(f"header {sapparchi.PLAN} is nested too deeply; flatten it")
    try:
        return seen_from(checked(_plans.decode(packed)), site)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise Undecodable(f"header {sapparchi.PLAN} is no plan: {exc}") from exc


@lru_cache(PLANS)
def _plan_of_actions(task_id: str, actions: tuple[str, ...], site: str) -> Plan:
    return seen_from(from_actions(task_id, actions), site)
