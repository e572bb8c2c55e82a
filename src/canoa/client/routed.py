"""A routed submit as the request that goes to the managers, as published. Nothing is sent here.

What a caller asks for besides (limits of the attempts, a plan) travels in headers: see `wire/sapparchi.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.errors import ArgumentsRefused, NobodyManages, PayloadTooLarge
from canoa.execution.plan import Plan, Step
from canoa.urn import ACTION_PREFIX, TASK_PREFIX
from canoa.wire import sapparchi, task
from canoa.wire.codec import ANY, ContentType, Unencodable
from canoa.wire.ids import new_task_id, task_id_of_key

if TYPE_CHECKING:
    from canoa.action import Options
    from canoa.vocabulary import ActionName, TaskId


_JSON: Final = ContentType.JSON.value


class Caller(NamedTuple):
    """On whose behalf it is sent."""

    reply_to: str | None
    limit_bytes: int
    site: str = ""  # unless the options say another one


def of_action(name: ActionName, body: bytes, options: Options, caller: Caller) -> Publication:
    """`body`: the arguments as JSON. Raises `PayloadTooLarge`."""
    request = sapparchi.TaskRequest(
        id=_task_id(name, options),
        target_actions=[ACTION_PREFIX + name],
        message_data=_checked(f"arguments of {name}", body, caller.limit_bytes).decode(),
        created_at=time.time_ns() // 1_000_000,
    )
    plan = None if options.timeout is None and options.retry is None else _single(name, options)
    return _publication(name, request, plan, options, caller)


def of_plan(plan: Plan | str, input: Any, options: Options, caller: Caller) -> Publication:
    """`plan`: itself, or the name of one that is registered. `input`: what its steps are given. Raises
    `ArgumentsRefused`, and `PayloadTooLarge`, also for a plan that is too large to travel with every task."""
    name = plan if isinstance(plan, str) else plan.name
    body = _encoded(name, input)
    request = sapparchi.TaskRequest(
        id=_task_id(TASK_PREFIX + name, options),
        task_id=TASK_PREFIX + name,
        message_data=_checked(f"the input of plan {name}", body, caller.limit_bytes).decode(),
        created_at=time.time_ns() // 1_000_000,
    )
    return _publication(name, request, None if isinstance(plan, str) else plan, options, caller)


def nobody_manages(what: str, *, is_memory: bool) -> NobodyManages:
    remedy = "run it under `canoa up`, or inside `app.manager()`" if is_memory else "start one: canoa manager"
    return NobodyManages(f"{what} is for a manager, and none ever ran on this broker; {remedy}")


def _publication(
    name: str, request: sapparchi.TaskRequest, plan: Plan | None, options: Options, caller: Caller
) -> Publication:
    message = Message(
        body=sapparchi.encode(request),
        content_type=_JSON,
        headers=_headers(plan, options, caller.site if options.site is None else options.site),
        persistent=not options.is_awaited,
        reply_to=None if options.result == "none" else caller.reply_to,
        message_id=request.id,
        type=name,
    )
    return Publication(message=message, key=topology.TASK_REQUESTS)


def _headers(plan: Plan | None, options: Options, site: str) -> dict[str, HeaderValue]:
    headers = task.new_headers()
    if plan is not None:
        headers[sapparchi.PLAN] = _packed(plan)
    if options.queue_timeout is not None:
        headers[task.DEADLINE] = int((time.time() + options.queue_timeout) * 1000)
    if site:
        headers[sapparchi.SITE] = site
    return headers


def _packed(plan: Plan) -> str:
    packed = sapparchi.encode(plan)
    if len(packed) > sapparchi.MAX_PLAN_BYTES:
        raise PayloadTooLarge(
            f"plan {plan.name}, which travels with its task",
            len(packed),
            sapparchi.MAX_PLAN_BYTES,
            remedy="register it (`canoa plans register plan.yaml`), and submit it by its name",
        )
    return packed.decode()


def _single(name: ActionName, options: Options) -> Plan:
    step = Step(name=name.rpartition(".")[2], action=name, timeout_s=options.timeout, retries=options.retry)
    return Plan(name=name, steps=(step,))


def _task_id(name: str, options: Options) -> TaskId:
    """Managers keep every task, so the key is the task."""
    return new_task_id() if options.idempotency_key is None else task_id_of_key(name, options.idempotency_key)


def _encoded(name: str, input: Any) -> bytes:
    try:
        return ANY.encode(input, ContentType.JSON)
    except Unencodable as exc:
        raise ArgumentsRefused(f"the input of plan {name} cannot travel: {exc}") from exc


def _checked(what: str, body: bytes, limit_bytes: int) -> bytes:
    if len(body) > limit_bytes:
        raise PayloadTooLarge(what, len(body), limit_bytes)
    return body
