"""A submit as the message that goes out. Nothing is sent here."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from canoa.broker import ladder, topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.errors import SettingError
from canoa.vocabulary import Layer
from canoa.wire import packing, task
from canoa.wire.compression_policy import DEFAULT_POLICY, CompressionPolicy
from canoa.wire.ids import new_task_id, task_id_of_key

if TYPE_CHECKING:
    from canoa.action import Action, Options
    from canoa.vocabulary import ActionName, TaskId

MAX_EXPIRATION_S: Final = 4_000_000.0
"""RabbitMQ closes the channel over a TTL of more than 2^32 ms, about 49 days. What may wait longer gets none."""


def publication(
    name: ActionName,
    body: bytes,
    content_type: str,
    options: Options,
    *,
    action: Action[..., Any, Any] | None,
    reply_to: str,
    limit_bytes: int,
    layer: Layer = Layer.CLOUD,
    compression: CompressionPolicy = DEFAULT_POLICY,
) -> Publication:
    """`body`: the arguments, encoded. `action`: None where this program does not know it.

    Raises `PayloadTooLarge`, and `SettingError` for a priority that the action does not keep.
    """
    task_id, now_s = _task_id(name, options), time.time()
    wait_s = delay_s(options, now_s)
    packed, encoding = packing.pack(body, limit_bytes, f"arguments of {name}", layer=layer, policy=compression)
    message = Message(
        body=packed,
        content_type=content_type,
        content_encoding=encoding,
        headers=_headers(options, now_s, wait_s),
        persistent=not options.is_awaited,
        priority=None if options.priority is None else _priority(options.priority, action),
        reply_to=reply_to if options.result != "none" else None,
        expiration_s=_expiration_s(options, action),
        message_id=task_id,
        type=name,
    )
    if options.result == "keep":  # a store takes it at once, and lets it wait
        return Publication(message=message, key=topology.SUBMIT)
    return ladder.towards(topology.action_queue_name(name), message, wait_s)


def _task_id(name: ActionName, options: Options) -> TaskId:
    """Where a store accepts it, the key is the task."""
    if options.result == "keep" and options.idempotency_key is not None:
        return task_id_of_key(name, options.idempotency_key)
    return new_task_id()


def delay_s(options: Options, now_s: float) -> float:
    """From now until it may start; 0 where that is past."""
    due_s = now_s if options.at is None else options.at.timestamp()
    return max(0.0, due_s - now_s) + (options.after or 0.0)


def _headers(options: Options, now_s: float, wait_s: float) -> dict[str, HeaderValue]:
    headers = task.new_headers()
    if wait_s > 0:
        headers[task.DUE] = math.ceil((now_s + wait_s) * 1000)
    if options.queue_timeout is not None:
        headers[task.DEADLINE] = int((now_s + wait_s + options.queue_timeout) * 1000)
    if options.timeout is not None:
        headers[task.TIMEOUT] = max(1, round(options.timeout * 1000))
    if options.retry is not None:
        headers[task.RETRIES] = options.retry
    if options.idempotency_key is not None:
        headers[task.IDEMPOTENCY_KEY] = options.idempotency_key
        if options.result == "keep":  # its id is made from the key, and does not tell when
            headers[task.SENT] = int(now_s * 1000)
    return headers


def _expiration_s(options: Options, action: Action[..., Any, Any] | None) -> float | None:
    """Only where the caller's clock ends the handle: the broker drops what its TTL ends, and tells nobody. A rung takes
    it off, so what is delayed has none."""
    if options.queue_timeout is None or options.is_delayed:
        return None
    if options.result != "reply" or run_limit_s(options, action) is None:
        return None
    wanted_s = options.queue_timeout + task.EXPIRATION_MARGIN_S
    return wanted_s if wanted_s <= MAX_EXPIRATION_S else None


def aimed_anew(publication: Publication, now_s: float) -> Publication:
    """The same for a later time: what was to wait on a rung now waits for less."""
    due_ms = publication.message.headers.get(task.DUE)
    if not publication.exchange or not isinstance(due_ms, int):
        return publication
    return ladder.towards(publication.key, publication.message, due_ms / 1000 - now_s)


def run_limit_s(options: Options, action: Action[..., Any, Any] | None) -> float | None:
    """How long one attempt may run, as far as this program knows."""
    return options.timeout or (action.policy.timeout_s if action else None)


def _priority(priority: int, action: Action[..., Any, Any] | None) -> int:
    if action is not None and action.priorities is None:
        raise SettingError(
            f"priority={priority}: {action.name} keeps no priorities apart; "
            f"define it with @app.action(priorities=5) to use them"
        )
    highest = 255 if action is None or action.priorities is None else action.priorities
    if type(priority) is not int or not 0 <= priority <= highest:
        whose = "AMQP" if action is None else action.name
        raise SettingError(f"priority={priority!r:.40}: {whose} keeps 0 to {highest} apart; use one of them")
    return priority
