"""The one door into the store: from the queue of tasks to keep, from the HTTP API, and from a session of this process.

Stored first, published then, acknowledged last. With a broker that forgets (memory), what is unfinished is published
again at the next start; with one that does not, the outbox or the unacknowledged message sees to it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from canoa.broker import ladder, topology
from canoa.broker.port import Publication
from canoa.broker.posting import is_hopeless, post
from canoa.clock import as_time, now_ms
from canoa.errors import CanoaError, QueueMissing, Undecodable, UnknownAction, Unroutable
from canoa.execution import rules, suspicion
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.recorder import reading
from canoa.recorder.doubts import Doubts
from canoa.recorder.ending import bad_end
from canoa.repeating import REPEAT_AFTER_S, Errands, is_lasting
from canoa.store.port import Accept, Accepted, Cursor
from canoa.wire import result
from canoa.wire.event import Event
from canoa.wire.letter import run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canoa.broker.events import Events
    from canoa.broker.port import Broker, Delivery, Message, PublishOutcome
    from canoa.execution.policy import Policy
    from canoa.recorder.ending import Ending
    from canoa.recorder.metrics import RecorderStats
    from canoa.recorder.outbox import Outbox
    from canoa.recorder.refusing import Refusals
    from canoa.store.grouping import GroupWriter
    from canoa.store.port import Answer, End, NewTask, Store
    from canoa.vocabulary import ActionName, TaskId

log = get_logger(__name__)

PAGE: Final = 500

T = TypeVar("T")


class Acceptor:
    """`is_memory`: the broker dies with this process, so the store alone remembers."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        writer: GroupWriter,
        *,
        ending: Ending,
        outbox: Outbox,
        refusals: Refusals,
        events: Events,
        stats: RecorderStats,
        is_memory: bool,
    ) -> None:
        self._broker = broker
        self._store = store
        self._writer = writer
        self._ending = ending
        self._outbox = outbox
        self._refusals = refusals
        self._events = events
        self._stats = stats
        self._is_memory = is_memory
        self._loop = asyncio.get_running_loop()
        self._errands = Errands()
        self._doubts = Doubts(store, self._errands, self._publish_own)
        self._offered: set[ActionName] = set()
        self._own: set[TaskId] | None = set()  # accepted since the start, until what was left before it is published

    def stop(self) -> None:
        """What is not acknowledged so far goes to the next recorder."""
        self._errands.stop()

    # --- From this process ------------------------------------------------------------------------

    async def check_offered(self, action: ActionName) -> None:
        """Raises `UnknownAction`: what nobody ever offered would wait for ever."""
        if action in self._offered:
            return
        try:
            await self._broker.depth(topology.action_queue_name(action))
        except QueueMissing as exc:
            raise UnknownAction(action, is_memory=self._is_memory) from exc
        self._offered.add(action)

    async def take(self, message: Message) -> Accepted:
        """Return once it is stored; what comes at the same time shares the transaction. Cancelled or not, what is
        stored will run."""
        [task] = await self._offered_tasks([message])
        answered: asyncio.Future[Accepted | CanoaError] = self._loop.create_future()
        self._post(task, partial(_resolve, answered))
        return _accepted(await answered)

    async def take_each(self, messages: list[Message]) -> None:
        """Return once they are stored. Raises the first refusal; what was stored before it runs all the same."""
        tasks = await self._offered_tasks(messages)
        missing = len(tasks)
        all_known: asyncio.Future[None] = self._loop.create_future()

        def on_answer(answer: Accepted | CanoaError) -> None:
            nonlocal missing
            missing -= 1
            if isinstance(answer, CanoaError) and not all_known.done():
                all_known.set_exception(answer)
            if not missing and not all_known.done():
                all_known.set_result(None)

        for task in tasks:
            self._post(task, on_answer)
        if tasks:
            await all_known

    async def take_all(self, messages: list[Message]) -> list[Accepted]:
        """All or nothing."""
        tasks = await self._offered_tasks(messages)
        doubted = [self._doubts.take(task.id) for task in tasks]
        answered: asyncio.Future[list[Accepted] | CanoaError] = self._loop.create_future()

        def on_answer(answer: Any) -> None:
            each = [answer] * len(tasks) if isinstance(answer, CanoaError) else answer
            for task, is_doubted, one in zip(tasks, doubted, each, strict=True):
                self._on_taken(task, is_doubted, one)
            _resolve(answered, answer)

        self._writer.post_all([self._change(task) for task in tasks], on_answer)
        return _accepted(await answered)

    async def _offered_tasks(self, messages: list[Message]) -> list[NewTask]:
        tasks = [reading.new_task(message, now_ms()) for message in messages]
        for action in {task.action for task in tasks}:
            await self.check_offered(action)
        return tasks

    def _post(self, task: NewTask, then: Callable[[Accepted | CanoaError], None]) -> None:
        is_doubted = self._doubts.take(task.id)

        def on_answer(answer: Any) -> None:
            self._on_taken(task, is_doubted, answer)
            then(answer)

        self._writer.post(self._change(task), on_answer)

    def _on_taken(self, task: NewTask, is_doubted: bool, answer: Accepted | CanoaError) -> None:
        """From the writer, so that no caller's end comes between storing and publishing."""
        if not isinstance(answer, CanoaError):
            self._on_stored(task, answer, is_doubted)
        elif self._is_memory and not is_lasting(answer):
            self._doubts.add(task)

    def _change(self, task: NewTask) -> Accept:
        return Accept(task=task, outbox=None if self._is_memory else _publication(task))

    def _on_stored(self, task: NewTask, accepted: Accepted, is_doubted: bool = False) -> None:
        self._count(task, accepted)
        if accepted.is_ended:
            self._errands.start(partial(self._tell_again, task, None), "tell_again")
        elif not self._is_memory:
            self._outbox.kick()
        elif accepted.is_new or is_doubted:
            self._publish_own(task)

    def _publish_own(self, task: NewTask) -> None:
        if self._own is not None:
            self._own.add(task.id)
        self._publish(task)

    # --- From the queue -----------------------------------------------------------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        try:
            task = reading.new_task(delivery.message, now_ms())
        except Undecodable as exc:
            self._refusals.refuse_submit(delivery, str(exc))
            return
        self._write(delivery, task, delivery.redelivered)

    def _write(self, delivery: Delivery, task: NewTask, is_again: bool) -> None:
        if not delivery.is_settled:
            self._writer.post(Accept(task=task), partial(self._on_answer, delivery, task, is_again))

    def _on_answer(self, delivery: Delivery, task: NewTask, is_again: bool, answer: Answer | CanoaError) -> None:
        if isinstance(answer, CanoaError):
            self._on_refused(delivery, task, answer)
            return
        self._stats.written()
        accepted: Accepted = answer  # type: ignore[assignment]
        self._count(task, accepted)
        if accepted.is_ended:
            self._errands.start(partial(self._tell_again, task, delivery), "tell_again")
        elif accepted.is_new or is_again or run_of(task.message):
            # Its recorder may have died between the commit and the publish, or its dead letter was sent here again.
            self._publish(task, delivery)
        else:
            delivery.settle()

    def _on_refused(self, delivery: Delivery, task: NewTask, error: CanoaError) -> None:
        if is_lasting(error):
            self._refusals.refuse_submit(delivery, str(error))
            return
        self._stats.not_written(error)
        # The link may have broken behind the commit: next time it may be known, and still unpublished.
        self._loop.call_later(REPEAT_AFTER_S, self._write, delivery, task, True)

    # --- Onwards --------------------------------------------------------------------------------------

    def _publish(self, task: NewTask, delivery: Delivery | None = None) -> None:
        post(self._broker, _publication(task), partial(self._on_published, task, delivery))

    def _on_published(self, task: NewTask, delivery: Delivery | None, outcome: PublishOutcome) -> None:
        if is_hopeless(outcome):
            error = UnknownAction(task.action) if isinstance(outcome, Unroutable) else outcome
            self._errands.start(partial(self._refuse, task, delivery, error), "refuse")
        elif outcome is not None:
            log.warning("task_not_published", task_id=task.id, reason=str(outcome))
            self._loop.call_later(REPEAT_AFTER_S, self._publish, task, delivery)
        elif delivery is not None:
            delivery.settle()

    async def _refuse(self, task: NewTask, delivery: Delivery | None, error: PublishOutcome) -> None:
        """Nobody offers its action, or no message can carry it: it ends as refused, and waits among the dead letters
        for somebody who does something about it."""
        what = result.failure(str(error), error_type=type(error).__name__, attempts=0)
        await self._ending.end(_bad_end(task, Outcome.REFUSED, what), partial(_settle, delivery))

    async def publish_unfinished(self, crashes: Mapping[TaskId, int], policies: Mapping[ActionName, Policy]) -> int:
        """Once after a start on a broker that forgets: everything that was accepted before and has not ended.
        `crashes`: how often a task was running when its process ended without a word, for those that were."""
        after: Cursor | None = None
        count = 0
        while page := await self._store.unfinished(limit=PAGE, after=after):
            # Told apart by id, not by time: the clock may have gone back since they were accepted.
            left = [task for task in page if self._own is None or task.id not in self._own]
            for task in left:
                if task.id in crashes and task.action in policies:
                    await self._publish_suspected(task, crashes[task.id], policies[task.action])
                else:
                    self._publish(task)
            count += len(left)
            after = Cursor(page[-1].submitted_ms, page[-1].id)
        self._own = None
        return count

    async def _publish_suspected(self, task: NewTask, crashes: int, policy: Policy) -> None:
        """As a worker does with what is redelivered: in company, then alone, then not any more."""
        match suspicion.judge(policy, crashes):
            case rules.Poison():
                what = result.failure(f"it was running when its process ended, {crashes} times", attempts=crashes)
                await self._ending.end(_bad_end(task, Outcome.POISONED, what))
            case rules.Recount(as_suspect=True):
                suspect = topology.suspect_queue_name(task.action)
                alone = Publication(message=task.message, key=suspect)
                post(self._broker, alone, partial(self._on_published, task, None))
            case _:
                self._publish(task)

    async def _tell_again(self, task: NewTask, delivery: Delivery | None) -> None:
        """The key is known and its task has ended: the caller hears at once how."""
        if task.reply_to is None:
            _settle(delivery)
            return
        answer = await self._store.result(task.id)
        if answer is not None:
            self._ending.tell(answer, (task.reply_to,), partial(_settle, delivery))
        elif delivery is not None:  # redriven in between, or forgotten: it is asked for anew
            self._write(delivery, task, False)
        else:
            self._on_stored(task, await self._writer.apply(self._change(task)))

    def _count(self, task: NewTask, accepted: Accepted) -> None:
        if accepted.is_new:
            self._stats.accepted += 1
            at = as_time(task.submitted_ms)
            self._events.tell(Event(kind="accepted", task_id=task.id, action=task.action, at=at))


def _resolve(answered: asyncio.Future[Any], answer: Any) -> None:
    if not answered.done():
        answered.set_result(answer)


def _accepted(answer: T | CanoaError) -> T:
    if isinstance(answer, CanoaError):
        raise answer
    return answer


def _settle(delivery: Delivery | None) -> None:
    if delivery is not None:
        delivery.settle()


def _bad_end(task: NewTask, outcome: Outcome, what: result.Failure) -> End:
    return bad_end(task.id, task.action, outcome, what=what, run=run_of(task.message))


def _publication(task: NewTask) -> Publication:
    wait_s = 0.0 if task.due_ms is None else (task.due_ms - now_ms()) / 1000
    return ladder.towards(topology.action_queue_name(task.action), task.message, wait_s)
