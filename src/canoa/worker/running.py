"""One delivery, from the bytes to the end of its attempt. What follows from that end is in `offer.py`."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pool_thread
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from canoa import telemetry
from canoa.action import IN_PROCESS, ON_LOOP
from canoa.context import Context
from canoa.errors import ActionTimedOut, ArgumentsRefused, DoNotRetry, PayloadTooLarge, Undecodable, WrongUse
from canoa.execution import rules
from canoa.execution.outcome import Outcome
from canoa.wire import packing, result, task, trace
from canoa.wire.codec import Unencodable
from canoa.worker.driving import Attempt, Interruption, drive
from canoa.worker.offer import Encoded
from canoa.worker.processes import Answer, ChildDied, ProcessPool, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from canoa.broker.port import Delivery
    from canoa.vocabulary import TaskId
    from canoa.wire.task import Task
    from canoa.worker.journal import Journal
    from canoa.worker.offer import Offer
    from canoa.worker.progress import ProgressTeller


_CALLERS = (str(Path(__file__).parent), pool_thread.__file__)
"""Where the code stands that calls actions, on the loop and in threads."""


class Cancellations(Protocol):
    """Which tasks were cancelled, as far as this worker heard."""

    def __contains__(self, task_id: object, /) -> bool: ...


class ChildRaised(Exception):
    """The action raised in its process: its words are all there is."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error)
        self.answer = answer


class Runner:
    """Shared by a worker's lanes."""

    def __init__(
        self,
        *,
        node_id: str,
        threads: int,
        processes: int,
        cancelled: Cancellations,
        progress: ProgressTeller,
        is_memory: bool,
        journal: Journal | None = None,
    ) -> None:
        self._node_id = node_id
        self._is_memory = is_memory
        self._progress = progress
        self._journal = journal
        self._cancelled = cancelled
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="canoa-action")
        self._process_count = processes
        self._processes: ProcessPool | None = None
        self._waiting: dict[TaskId, Attempt] = {}
        self._is_ending = False

    def close(self) -> None:
        """Kills the processes. Threads cannot be killed; they end with their actions."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._processes is not None:
            self._processes.close()

    def interrupt(self, task_id: TaskId, why: Interruption) -> None:
        attempt = self._waiting.get(task_id)
        if attempt is not None:
            attempt.interrupt(why)

    def interrupt_all(self, why: Interruption) -> None:
        """The end of all attempts: from now on a cancelled runner is one that was told to go."""
        self._is_ending = True
        for attempt in list(self._waiting.values()):
            attempt.interrupt(why)

    # --- From the delivery to the decision --------------------------------------------------------

    async def handle(self, offer: Offer, delivery: Delivery, *, is_suspect: bool = False) -> None:
        """From the bytes to the end. `is_suspect`: it came from the suspect queue, and nothing else runs here."""
        known = self.look(offer, delivery, is_suspect=is_suspect)
        if known is not None:
            await self._attempt(offer, known, delivery, offer.policy_for(known).timeout_s)

    def look(self, offer: Offer, delivery: Delivery, *, is_suspect: bool = False) -> Task | None:
        """The task, if it may run now. None: whatever else follows from its state has been done."""
        if offer.absorbs(delivery):  # another copy of it started while this one waited
            return None
        try:
            known = task.read(delivery.message, offer.name)
        except Undecodable as exc:
            offer.refuse_message(delivery, str(exc))
            return None
        is_timed = known.due_s is not None or known.deadline_s is not None
        if not (is_timed or delivery.redelivered or is_suspect or known.id in self._cancelled):
            return known  # the rules have nothing to say about it: most tasks
        intent = rules.on_delivery(
            offer.policy_for(known),
            rules.Received(
                attempt=known.attempt,
                crashes=known.crashes,
                redelivered=delivery.redelivered,
                is_suspect=is_suspect,
                due_s=known.due_s,
                deadline_s=known.deadline_s,
                is_cancelled=known.id in self._cancelled,
            ),
            offer.now_s(),
        )
        match intent:
            case rules.Run():
                return known
            case rules.Recount(crashes=crashes, as_suspect=as_suspect):
                offer.recount(known, delivery, crashes, as_suspect=as_suspect)
            case rules.Poison(crashes=crashes):
                offer.poison(known, delivery, f"it ended its worker's process {crashes} times")
            case rules.Expire():
                what = result.failure("not started before its deadline (queue_timeout)", attempts=known.attempt)
                offer.fail(known, delivery, Outcome.EXPIRED, what)
            case rules.Skip():
                offer.skip(known, delivery)
            case rules.Wait(wait_s=wait_s):
                offer.wait(delivery, wait_s)
        return None

    def is_wanted(self, offer: Offer, known: Task) -> bool:
        """Neither cancelled nor expired meanwhile."""
        return known.id not in self._cancelled and (known.deadline_s is None or offer.now_s() < known.deadline_s)

    def arguments(self, offer: Offer, known: Task, delivery: Delivery) -> Any | None:
        """Decoded. None: they cannot be used, and its caller was told."""
        try:
            body = packing.unpack(known.message, offer.max_payload_bytes)
            return offer.action.signature.decode(body, known.message.content_type)
        except (ArgumentsRefused, Undecodable, PayloadTooLarge) as exc:
            offer.end_badly(known, delivery, rules.Refused(), _failure(exc, known))
            return None

    # --- The attempt ----------------------------------------------------------------------------

    async def _attempt(self, offer: Offer, known: Task, delivery: Delivery, limit_s: float | None) -> None:
        stats, attempt, is_kept = offer.stats, Attempt(), known.is_kept
        if is_kept or offer.is_routed:
            known = msgspec.structs.replace(known, started_s=offer.now_s())
        offer.begun(delivery)
        if is_kept and self._journal is not None:
            self._journal.begun(known.id)
        spanned = telemetry.begin_attempt(known, offer.queue, node_id=self._node_id, is_memory=self._is_memory)
        stats.in_progress += 1
        if known.sent_s is not None:
            stats.queued.observe(max(0.0, time.time() - max(known.sent_s, known.due_s or 0.0)))
        started_s = time.perf_counter()
        try:
            await self._run(offer, known, delivery, limit_s, attempt)
        finally:
            run_s = time.perf_counter() - started_s
            if is_kept and self._journal is not None:
                self._journal.ended(known.id)
            stats.in_progress -= 1
            stats.duration.observe(run_s)
            offer.estimate.add(run_s, len(known.message.body))
            if spanned is not None:
                spanned.end()

    async def _run(
        self, offer: Offer, known: Task, delivery: Delivery, limit_s: float | None, attempt: Attempt
    ) -> None:
        try:
            work, variables = self._prepare(offer, known, limit_s, attempt)
        except (ArgumentsRefused, Undecodable, PayloadTooLarge) as exc:
            offer.end_badly(known, delivery, rules.Refused(), _failure(exc, known))
            return
        try:
            value = await drive(work, variables, partial(self._on_wait, known.id, attempt, limit_s))
        except asyncio.CancelledError:
            self._on_interrupted(offer, known, delivery, attempt)
        except ChildDied as exc:
            self._on_child_died(offer, known, delivery, exc)
        except ChildRaised as exc:
            end = rules.Refused() if exc.answer.is_refused else rules.Raised(exc.answer.is_retryable)
            offer.end_badly(known, delivery, end, _failure_told(exc.answer, known))
        except (Exception, SystemExit) as exc:  # an action's `sys.exit()` must not end its worker
            offer.end_badly(known, delivery, rules.Raised(not isinstance(exc, DoNotRetry)), _failure(exc, known))
        else:
            self._succeed(offer, known, delivery, value)
        finally:
            if attempt.is_waiting:
                attempt.end()
                if self._waiting.get(known.id) is attempt:  # not another copy of the same task
                    del self._waiting[known.id]

    def _succeed(self, offer: Offer, known: Task, delivery: Delivery, value: Any) -> None:
        try:
            offer.succeed(known, delivery, value)
        except (Unencodable, PayloadTooLarge) as exc:
            offer.end_badly(known, delivery, rules.Refused(), _failure(exc, known))

    def _on_wait(self, task_id: TaskId, attempt: Attempt, limit_s: float | None) -> None:
        self._waiting[task_id] = attempt
        attempt.begin_wait(limit_s)

    def _on_interrupted(self, offer: Offer, known: Task, delivery: Delivery, attempt: Attempt) -> None:
        match attempt.interrupted_by:
            case Interruption.TIMED_OUT:
                limit_s = offer.policy_for(known).timeout_s
                what = result.failure(
                    f"ran longer than its timeout of {limit_s:g} s",
                    error_type=ActionTimedOut.__name__,
                    attempts=known.attempt,
                )
                offer.end_badly(known, delivery, rules.TimedOut(), what)
            case Interruption.CANCELLED:
                what = result.failure("cancelled by its caller", attempts=known.attempt)
                offer.end_badly(known, delivery, rules.Cancelled(), what)
            case Interruption.DRAINED:
                offer.hand_back(delivery)
            case None:
                self._on_stray_cancel(offer, known, delivery)

    def _on_stray_cancel(self, offer: Offer, known: Task, delivery: Delivery) -> None:
        """Nobody interrupted the attempt: it cancelled itself, or its runner is being ended."""
        current = asyncio.current_task()
        if current is None or not current.cancelling() or getattr(current, "is_cancelled_from_within", False):
            text = "the action was cancelled from within"
            what = result.failure(text, error_type="CancelledError", attempts=known.attempt)
            offer.end_badly(known, delivery, rules.Raised(), what)
            return
        if self._is_ending:
            offer.hand_back(delivery)
        else:
            offer.requeue(delivery)  # the program ends without a drain: to the next worker this is a crash
        raise asyncio.CancelledError

    def _on_child_died(self, offer: Offer, known: Task, delivery: Delivery, exc: ChildDied) -> None:
        """Its process ran nothing else, so this counts like a crash of a suspect."""
        received = rules.Received(crashes=known.crashes, redelivered=True, is_suspect=True)
        intent = rules.on_delivery(offer.policy_for(known), received, 0.0)
        if isinstance(intent, rules.Recount):
            telemetry.failed(result.failure(str(exc)), "crashed")
            offer.recount(known, delivery, intent.crashes, as_suspect=False)
        else:
            offer.poison(known, delivery, f"{exc}, {known.crashes + 1} times")

    # --- The three places an action can run -------------------------------------------------------

    def _prepare(
        self, offer: Offer, known: Task, limit_s: float | None, attempt: Attempt
    ) -> tuple[Coroutine[Any, Any, Any], Variables]:
        """The work as a coroutine, and variables of its own: what an action sets there is gone with it.

        Raises what makes the request unusable.
        """
        message, action = known.message, offer.action
        body = packing.unpack(message, offer.max_payload_bytes)
        variables = copy_context()
        variables.run(trace.received.set, telemetry.trace_headers(known))
        if action.runs is IN_PROCESS:
            return self._in_process(offer, known, body, self._context(known, limit_s)), variables
        args, kwargs = action.signature.call_form(action.signature.decode(body, message.content_type))
        if action.signature.takes_context:
            context = self._context(known, limit_s)
            attempt.on_interrupt = context.cancel
            args = (context, *args)
        if action.runs is ON_LOOP:
            return action.function(*args, **kwargs), variables
        return self._in_thread(variables.copy(), partial(action.function, *args, **kwargs)), variables

    async def _in_thread(self, variables: Variables, function: Any) -> Any:
        """Interrupted, the wait ends and the thread goes on: it can look at its context's `is_cancelled`."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, variables.run, _called, function)

    async def _in_process(self, offer: Offer, known: Task, body: bytes, context: Context) -> Encoded:
        if self._processes is None:
            self._processes = ProcessPool(self._process_count)
        function = offer.action.function
        request = Request(
            module=function.__module__,
            qualname=function.__qualname__,
            body=body,
            content_type=known.message.content_type,
            context=context.facts(),
            trace=dict(telemetry.trace_headers(known)),
        )
        answer = await self._processes.run(request, on_report=context.progress)
        if answer.error_type:
            raise ChildRaised(answer)
        return Encoded(answer.body)

    def _context(self, known: Task, limit_s: float | None) -> Context:
        traced = trace.from_headers(telemetry.trace_headers(known))
        return Context(
            task_id=known.told_id,
            action=known.action,
            attempt=known.attempt,
            deadline=None if limit_s is None else time.time() + limit_s,
            idempotency_key=known.idempotency_key,
            node_id=self._node_id,
            trace_id=traced.trace_id if traced else None,
            span_id=telemetry.span_id_in_hand(),
            report=self._progress.of(known),
        )


def _called(function: Callable[[], Any]) -> Any:
    """A future cannot carry `StopIteration`, and would never end: it becomes what it is for coroutines (PEP 479)."""
    try:
        return function()
    except StopIteration as exc:
        raise RuntimeError("the action raised StopIteration") from exc


def _failure(exc: BaseException, known: Task) -> result.Failure:
    """A traceback only for what the action's own code raised: ours says nothing to its author."""
    shown = traceback.format_exception(type(exc), exc, _from_the_action_on(exc.__traceback__))
    text = "" if isinstance(exc, WrongUse) else "".join(shown)
    return result.failure(str(exc), error_type=type(exc).__name__, attempts=known.attempt, traceback=text)


def _from_the_action_on(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of the worker that called it."""
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_CALLERS):
        trace = trace.tb_next
    return trace


def _failure_told(answer: Answer, known: Task) -> result.Failure:
    return result.failure(
        answer.error, error_type=answer.error_type, attempts=known.attempt, traceback=answer.traceback
    )


def processors() -> int:
    return os.cpu_count() or 1
