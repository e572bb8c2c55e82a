"""The desk: everything one may ask about kept tasks, answered for the HTTP API and for the system actions alike."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.action import Options
from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.client import outgoing
from canoa.clock import as_time, now_ms
from canoa.errors import CanoaError, NotDead, SettingError, UnknownTask
from canoa.execution.outcome import Outcome
from canoa.recorder import showing
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.views import (
    ActionView,
    LetterPage,
    LetterView,
    Redriven,
    Request,
    ResultView,
    Submitted,
    TaskPage,
    TaskView,
)
from canoa.store.port import End, Redrive, State, TaskFilter
from canoa.urn import action_name
from canoa.vocabulary import ActionName, Layer, TaskId
from canoa.wire import result
from canoa.wire.codec import ContentType
from canoa.wire.compression_policy import DEFAULT_POLICY, CompressionPolicy
from canoa.wire.event import Event
from canoa.wire.ids import made_at_s, new_task_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from canoa.action import Action
    from canoa.app import Canoa
    from canoa.recorder.metrics import RecorderStats
    from canoa.recorder.routed_views import OutputView, StoryView
    from canoa.recorder.service import Recorder
    from canoa.recorder.token_desk import TokenDesk
    from canoa.store.port import TaskRow

MAX_PAGE: Final = 500
NEW_FOR_S: Final = 60.0
GRACE_S: Final = 3.0
LOOK_FOR_NEW_AFTER_S: Final = 0.02
LOOK_EVERY_S: Final = 5.0
"""How often a waiter looks into the store: events of other recorders may be missed while a link is down."""


class Desk:
    """`app`: whose actions are known here by their parameters; None where a recorder serves any app."""

    def __init__(
        self,
        recorder: Recorder,
        app: Canoa | None,
        *,
        max_payload_bytes: int,
        layer: Layer = Layer.CLOUD,
        compression: CompressionPolicy = DEFAULT_POLICY,
        routed: RoutedDesk | None = None,
        tokens: TokenDesk | None = None,
    ) -> None:
        self.routed = routed or RoutedDesk(max_payload_bytes=max_payload_bytes)
        self.tokens = tokens
        self._recorder = recorder
        self._store = recorder.store
        self._app = app
        self._limit_bytes = max_payload_bytes
        self._layer = layer
        self._compression = compression

    @property
    def stats(self) -> RecorderStats:
        """What its recorder counts."""
        return self._recorder.stats

    # --- Submitting ---------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Submitted:
        """Stored when it returns. Raises `ArgumentsRefused` and `UnknownAction` before anything is stored."""
        message = self._message(request)
        accepted = await self._recorder.acceptor.take(message)
        return Submitted(id=message.message_id or "", action=message.type or "", is_new=accepted.is_new)

    async def submit_many(self, requests: list[Request]) -> list[Submitted]:
        """All or nothing."""
        messages = [self._message(request) for request in requests]
        accepted = await self._recorder.acceptor.take_all(messages)
        return [
            Submitted(id=message.message_id or "", action=message.type or "", is_new=answer.is_new)
            for message, answer in zip(messages, accepted, strict=True)
        ]

    def _message(self, request: Request) -> Message:
        name = action_name(request.action)
        known = self._known(name)
        body = msgspec.json.encode(request.arguments)
        if known is not None:
            known.signature.decode(body, ContentType.JSON.value)
        given = request.options
        options = Options(
            result="keep",
            priority=given.priority,
            timeout=given.timeout,
            retry=given.retry,
            queue_timeout=given.queue_timeout,
            idempotency_key=given.idempotency_key,
            after=given.after,
            at=given.at,
            site=given.site,
        )
        publication = outgoing.publication(
            name,
            body,
            ContentType.JSON.value,
            options,
            action=known,
            reply_to="",
            limit_bytes=self._limit_bytes,
            layer=self._layer,
            compression=self._compression,
        )
        return msgspec.structs.replace(publication.message, reply_to=None)

    def _known(self, name: ActionName) -> Action[..., Any, Any] | None:
        return None if self._app is None else self._app.actions.get(name)

    # --- One task -----------------------------------------------------------------------------------

    async def task(self, task_id: str) -> TaskView:
        return showing.task(await self._row(task_id))

    async def result(self, task_id: str, *, wait_s: float = 0) -> ResultView:
        """As soon as it ended, or after `wait_s` as it stands."""
        row = await (self._ended_row(task_id, wait_s) if wait_s > 0 else self._row(task_id))
        answer = await self._store.result(row.id) if row.state is State.ENDED else None
        return showing.result(row, answer, self._limit_bytes)

    async def _ended_row(self, task_id: str, wait_s: float) -> TaskRow:
        give_up_s = time.monotonic() + wait_s
        with self._recorder.events.watching(task_id) as ended:
            while True:
                ended.clear()
                row = await self._row(task_id)
                left_s = give_up_s - time.monotonic()
                if row.state is State.ENDED or left_s <= 0:
                    return row
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_EVERY_S)):
                        await ended.wait()

    async def cancel(self, task_id: str) -> TaskView:
        """It ends as cancelled, unless it has ended; workers that hear of it skip or interrupt it."""
        row = await self._row(task_id)
        if await self.routed.is_routed(row.id):
            await self.routed.cancel(row.id)
        elif row.state is not State.ENDED:
            what = result.failure("cancelled", attempts=row.attempts)
            change = End(
                task_id=row.id,
                action=row.action,
                outcome=Outcome.CANCELLED,
                result=result.failure_message(row.id, Outcome.CANCELLED, what),
                ended_ms=now_ms(),
                attempts=row.attempts,
                error=what.message,
                run=row.run,
            )
            if await self._recorder.ending.end(change):
                self._announce_cancel(row.id)
        return await self.task(task_id)

    async def story(self, task_id: str) -> StoryView:
        """Of a routed task: each step, each attempt, which node and why."""
        return await self.routed.story(await self._row(task_id))

    async def rerun(self, task_id: str) -> TaskView:
        """Of a routed task that ended badly, the steps that did not succeed."""
        row = await self._row(task_id)
        await self.routed.rerun(row.id)
        return await self.task(task_id)

    async def output(self, task_id: str, step: str) -> OutputView:
        row = await self._row(task_id)
        return await self.routed.output(row.id, step)

    def _announce_cancel(self, task_id: TaskId) -> None:
        notice = Message(body=task_id.encode(), persistent=False, message_id=new_task_id(), type="canoa.cancel")
        to_all = Publication(message=notice, exchange=topology.CANCEL, key="", mandatory=False)
        self._recorder.broker.post(to_all, lambda _: None)

    async def _row(self, task_id: str) -> TaskRow:
        """What was submitted a moment ago may still be on its way through the broker: it is waited for."""
        give_up_s = time.monotonic() + _grace_s(task_id, is_memory=self._recorder.is_memory)
        row = await self._store.task(TaskId(task_id))
        step_s = LOOK_FOR_NEW_AFTER_S
        while row is None and time.monotonic() < give_up_s:
            await asyncio.sleep(step_s)
            step_s *= 2
            row = await self._store.task(TaskId(task_id))
        if row is None:
            raise UnknownTask(task_id)
        return row

    # --- Many ---------------------------------------------------------------------------------------

    async def tasks(
        self,
        *,
        action: str | None = None,
        state: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        """The newest first."""
        wanted = TaskFilter(
            action=None if action is None else action_name(action),
            state=_one_of(State, "state", state),
            outcome=_one_of(Outcome, "outcome", outcome),
        )
        limit = _checked_limit(limit)
        rows = await self._store.tasks(wanted, limit=limit + 1, before=showing.read_cursor(cursor))
        shown = rows[:limit]
        more = showing.cursor(shown[-1].submitted_ms, shown[-1].id) if len(rows) > limit else None
        return TaskPage(tasks=[showing.task(row) for row in shown], next=more)

    async def dead(self, *, action: str | None = None, limit: int = 50, cursor: str | None = None) -> LetterPage:
        """Dead letters that wait, the newest first."""
        limit = _checked_limit(limit)
        name = None if action is None else action_name(action)
        letters = await self._store.letters(limit=limit + 1, action=name, before=showing.read_cursor(cursor))
        shown = letters[:limit]
        more = showing.cursor(shown[-1].dead_ms, shown[-1].task_id) if len(letters) > limit else None
        return LetterPage(letters=[showing.letter(each) for each in shown], next=more)

    async def letter(self, task_id: str) -> LetterView:
        found = await self._store.letter(TaskId(task_id))
        if found is None:
            raise NotDead(task_id)
        return showing.letter(found)

    async def redrive(self, task_ids: Sequence[str]) -> Redriven:
        """Send them again, each once: a letter that was redriven is skipped until its task dies again."""
        redriven: list[str] = []
        skipped: list[str] = []
        for start in range(0, len(task_ids), MAX_PAGE):
            page = task_ids[start : start + MAX_PAGE]
            for task_id, is_done in zip(page, await self._redriven(page), strict=True):
                (redriven if is_done else skipped).append(task_id)
        return Redriven(redriven=redriven, skipped=skipped)

    async def redrive_all(self, *, action: str | None = None) -> Redriven:
        """All that wait now; what dies meanwhile waits for the next time: it stands before the first page."""
        redriven: list[str] = []
        skipped: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.dead(action=action, limit=MAX_PAGE, cursor=cursor)
            done = await self.redrive([each.task_id for each in page.letters])
            redriven += done.redriven
            skipped += done.skipped
            cursor = page.next
            if cursor is None:
                return Redriven(redriven=redriven, skipped=skipped)

    async def _redriven(self, task_ids: Sequence[str]) -> list[bool]:
        """Of each, whether it was. Given to the writer at once, so that they share its transactions."""
        at_ms = now_ms()
        changes = [Redrive(task_id=TaskId(task_id), now_ms=at_ms) for task_id in task_ids]
        try:
            done: list[bool] = await asyncio.gather(*map(self._recorder.writer.apply, changes))
        finally:
            self._recorder.outbox.kick()  # also when one of them failed: the others did not
        letters = await asyncio.gather(*(self._store.letter(each.task_id) for each in changes))
        for letter, is_done in zip(letters, done, strict=True):
            if letter is not None and is_done:
                at = as_time(at_ms)
                self._recorder.events.tell(Event(kind="redriven", task_id=letter.task_id, action=letter.action, at=at))
        return done

    # --- Looking on -----------------------------------------------------------------------------------

    async def actions(self) -> list[ActionView]:
        known = [] if self._app is None else list(self._app.actions.values())
        return [showing.action(each, *(await self._depth(each.name))) for each in known]

    async def _depth(self, action: ActionName) -> tuple[int | None, int | None]:
        try:
            depth = await self._recorder.broker.depth(topology.action_queue_name(action))
        except CanoaError:
            return None, None
        return depth.messages, depth.consumers

    def events(
        self, *, task_id: str | None = None, action: str | None = None, node_id: str | None = None
    ) -> AsyncGenerator[Event, None]:
        return self._recorder.events.listen(task_id=task_id, action=action, node_id=node_id)


def _grace_s(task_id: str, *, is_memory: bool) -> float:
    made_s = made_at_s(TaskId(task_id))
    if is_memory or (made_s is not None and time.time() - made_s > NEW_FOR_S):
        return 0.0
    return GRACE_S


def _checked_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise SettingError(f"limit={limit}: use 1 to {MAX_PAGE}, and `cursor` for what is behind it")
    return limit


def _one_of(kind: Any, name: str, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError as exc:
        known = ", ".join(each.value for each in kind)
        raise SettingError(f"{name}={value!r:.40}: use one of {known}") from exc
