"""A program's side of the pool: sends tasks, hears their results. One per app and event loop.

Accepted means confirmed by the broker. A task whose confirm got lost with the link is sent again under the same id:
workers may run it twice, its handle takes one result. What `reply` promises: `docs/concepts/guarantees.md`.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from canoa.action import Options
from canoa.broker import topology
from canoa.broker.port import Delivery, HeaderValue, Message, Publication, PublishOutcome
from canoa.client.handle import Handle
from canoa.client.metrics import METRICS
from canoa.errors import (
    ArgumentsRefused,
    CanoaError,
    DeliveryUnknown,
    SettingError,
    TaskExpired,
    TaskRefused,
    UnknownAction,
    Unroutable,
    WrongUse,
)
from canoa.execution.outcome import Outcome
from canoa.vocabulary import ActionName, TaskId
from canoa.wire import packing, result, task
from canoa.wire.ids import new_client_id, new_task_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.action import Action, Args
    from canoa.app import Canoa
    from canoa.broker.port import Consumer, Depth

REPLY_PREFETCH = 1000
"""Replies are tiny work: many in hand hide the broker's round trips."""

GRACE_S = 1.0
"""The caller's clock ends a handle this long after the last moment a worker could: its answer may be on the way."""


class Session:
    def __init__(self, app: Canoa) -> None:
        self.loop = asyncio.get_running_loop()
        self._app = app
        self._broker = app.new_broker("client")
        self._reply_queue = topology.reply_queue(new_client_id())
        self._waiting: dict[TaskId, tuple[Handle[Any], Any]] = {}
        self._replies: Consumer | None = None
        self._last_reply: Delivery | None = None
        self._opening = asyncio.Lock()
        self._is_open = False

    # --- Life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if self._is_open:
                return
            await self._broker.open()
            self._replies = await self._broker.consume(
                self._reply_queue.name, self._on_reply, prefetch=REPLY_PREFETCH, topology=[self._reply_queue]
            )
            self._is_open = True

    async def aclose(self) -> None:
        """Take the reply queue along: nobody will come back for it."""
        if not self._is_open:
            return
        self._is_open = False
        self._settle_replies()
        try:
            async with asyncio.timeout(2.0):
                if self._replies is not None:
                    await self._replies.cancel()
                await self._broker.delete_queue(self._reply_queue.name)
        except (CanoaError, TimeoutError):
            pass  # it expires by itself
        await self._broker.aclose()
        for handle, _ in self._waiting.values():
            handle.fail(DeliveryUnknown(f"the app was closed before task {handle.id} answered"))
        self._waiting.clear()

    # --- Sending ------------------------------------------------------------------------------------

    async def submit(self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any) -> Handle[Any]:
        return await self._accepted(*self._prepare(action, options, args, kwargs))

    async def submit_raw(self, name: ActionName, body: bytes, content_type: str) -> Handle[Any]:
        return await self._accepted(*self._prepare_raw(name, body, content_type, Options(), None))

    async def _accepted(self, handle: Handle[Any], publication: Publication) -> Handle[Any]:
        accepted: asyncio.Future[PublishOutcome] = self.loop.create_future()
        self._post(publication, handle, accepted)
        error = await accepted
        if error is not None:
            raise error
        return handle

    def start(self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any) -> Handle[Any]:
        """Without waiting for the confirm: the result itself will prove it. A refusal ends the handle."""
        handle, publication = self._prepare(action, options, args, kwargs)
        self._post(publication, handle, None)
        return handle

    async def submit_many(
        self, action: Action[..., Any, Any], options: Options, calls: Sequence[Args]
    ) -> list[Handle[Any]]:
        prepared = [self._prepare(action, options, call.args, call.kwargs) for call in calls]
        outcomes = await self._broker.publish_many([publication for _, publication in prepared])
        for (handle, publication), outcome in zip(prepared, outcomes, strict=True):
            if isinstance(outcome, DeliveryUnknown):
                accepted: asyncio.Future[PublishOutcome] = self.loop.create_future()
                self._post(publication, handle, accepted)
                outcome = await accepted
            if outcome is not None:
                self._refuse([each for each, _ in prepared], handle, outcome)
        return [handle for handle, _ in prepared]

    def _refuse(self, handles: list[Handle[Any]], refused: Handle[Any], outcome: CanoaError) -> None:
        error = self._named(outcome, refused.action)
        for handle in handles:
            self.forget(handle.id)
            handle.fail(error)
        raise error

    def _prepare(
        self, action: Action[..., Any, Any], options: Options, args: Any, kwargs: Any
    ) -> tuple[Handle[Any], Publication]:
        body = action.signature.encode(args, kwargs, action.content_type)
        return self._prepare_raw(action.name, body, action.content_type.value, options, action)

    def _prepare_raw(
        self,
        name: ActionName,
        body: bytes,
        content_type: str,
        options: Options,
        action: Action[..., Any, Any] | None,
    ) -> tuple[Handle[Any], Publication]:
        """A task for an action this program may not know, its arguments already encoded."""
        task_id, now_s = new_task_id(), time.time()
        wants_result = options.result == "reply"
        packed, encoding = packing.pack(body, self._app.settings.max_payload_bytes, f"arguments of {name}")
        message = Message(
            body=packed,
            content_type=content_type,
            content_encoding=encoding,
            headers=_headers(task_id, options, now_s),
            priority=_priority(options, action),
            reply_to=self._reply_queue.name if wants_result else None,
            expiration_s=None if options.queue_timeout is None else options.queue_timeout + task.EXPIRATION_MARGIN_S,
            message_id=task_id,
            type=name,
        )
        handle: Handle[Any] = Handle(self, task_id, name)
        if wants_result:
            self._waiting[task_id] = (handle, None if action is None else action.signature.result)
            self._watch_clock(handle, options, action)
        else:
            handle.succeed(None)
        return handle, Publication(message=message, key=topology.action_queue_name(name))

    def _watch_clock(self, handle: Handle[Any], options: Options, action: Action[..., Any, Any] | None) -> None:
        """With both limits known, the handle ends by the caller's clock, whatever became of the task."""
        run_s = options.timeout or (action.policy.timeout_s if action else None)
        if options.queue_timeout is not None and run_s is not None:
            self.loop.call_later(options.queue_timeout + run_s + GRACE_S, self._on_overdue, handle)

    def _on_overdue(self, handle: Handle[Any]) -> None:
        if not handle.is_done:
            self.forget(handle.id)
            text = f"task {handle.id} ({handle.action}) was neither started nor refused within its time limits"
            handle.fail(TaskExpired(text, task_id=handle.id))

    def _post(
        self, publication: Publication, handle: Handle[Any], accepted: asyncio.Future[PublishOutcome] | None
    ) -> None:
        give_up_s = self.loop.time() + self._app.settings.submit_timeout_s
        self._broker.post(publication, partial(self._on_outcome, publication, handle, accepted, give_up_s))

    def _on_outcome(
        self,
        publication: Publication,
        handle: Handle[Any],
        accepted: asyncio.Future[PublishOutcome] | None,
        give_up_s: float,
        outcome: PublishOutcome,
    ) -> None:
        if isinstance(outcome, DeliveryUnknown) and self._is_open and self.loop.time() < give_up_s:
            again = partial(self._on_outcome, publication, handle, accepted, give_up_s)
            self._broker.post(publication, again)
            return
        error = None if outcome is None else self._named(outcome, handle.action)
        if error is not None:
            self.forget(handle.id)
            handle.fail(error)
        if accepted is not None and not accepted.done():
            accepted.set_result(error)

    @staticmethod
    def _named(outcome: CanoaError, action: ActionName) -> CanoaError:
        return UnknownAction(action) if isinstance(outcome, Unroutable) else outcome

    async def depth(self, action: ActionName) -> Depth:
        return await self._broker.depth(topology.action_queue_name(action))

    async def announce_cancel(self, task_id: TaskId) -> None:
        """To every worker there is. Nobody listening is fine; no link is not our caller's problem either."""
        notice = Message(body=task_id.encode(), persistent=False, message_id=new_task_id(), type="canoa.cancel")
        try:
            await self._broker.publish(Publication(message=notice, exchange=topology.CANCEL, key="", mandatory=False))
        except CanoaError:
            pass

    # --- Hearing ------------------------------------------------------------------------------------

    def forget(self, task_id: TaskId) -> None:
        self._waiting.pop(task_id, None)

    def _on_reply(self, delivery: Delivery) -> None:
        """Replies are acknowledged together, once per turn of the loop."""
        if self._last_reply is None:
            self.loop.call_soon(self._settle_replies)
        self._last_reply = delivery
        message = delivery.message
        waiting = self._waiting.pop(TaskId(message.correlation_id or ""), None)
        if waiting is None:
            METRICS.duplicates += 1
        else:
            self._resolve(*waiting, message)

    def _settle_replies(self) -> None:
        last, self._last_reply = self._last_reply, None
        if last is not None and self._replies is not None:
            self._replies.settle_through(last)

    def _resolve(self, handle: Handle[Any], codec: Any, message: Message) -> None:
        if message.type != Outcome.OK.value:
            handle.fail(result.error_from(message, handle.id))
            return
        try:
            body = packing.unpack(message, self._app.settings.max_payload_bytes)
            handle.succeed((codec or packing.ANY).decode(body, message.content_type))
        except WrongUse as exc:
            text = f"task {handle.id} ({handle.action}) answered with a result that cannot be used: {exc}"
            handle.fail(TaskRefused(text, task_id=handle.id))


def _headers(task_id: TaskId, options: Options, now_s: float) -> dict[str, HeaderValue]:
    headers = task.new_headers(task_id, now_s)
    if options.queue_timeout is not None:
        headers[task.DEADLINE] = int((now_s + options.queue_timeout) * 1000)
    if options.timeout is not None:
        headers[task.TIMEOUT] = max(1, round(options.timeout * 1000))
    if options.retry is not None:
        headers[task.RETRIES] = options.retry
    if options.idempotency_key is not None:
        headers[task.IDEMPOTENCY_KEY] = options.idempotency_key
    return headers


def _priority(options: Options, action: Action[..., Any, Any] | None) -> int | None:
    if options.priority is None or action is None:
        return options.priority
    if action.priorities is None:
        raise ArgumentsRefused(
            f"{action.name} keeps no priorities apart; define it with @app.action(priorities=5) to use priority="
        )
    if not 0 <= options.priority <= action.priorities:
        raise SettingError(f"priority={options.priority}: {action.name} keeps 0 to {action.priorities} apart")
    return options.priority
