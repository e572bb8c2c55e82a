"""One action in the pool: its shared queues, and what is decided when a task of it ends."""

from __future__ import annotations

import time
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any

import msgspec

from canoa import telemetry
from canoa.broker import ladder, topology
from canoa.broker.port import Consumer, Delivery, Message, Publication
from canoa.execution import rules
from canoa.execution.backoff import pick_rung
from canoa.execution.outcome import OK, Outcome
from canoa.execution.prefetch import RunEstimate
from canoa.logs import get_logger
from canoa.vocabulary import TaskId
from canoa.wire import packing, result, task
from canoa.wire.codec import ContentType
from canoa.wire.ids import made_up_id
from canoa.wire.letter import run_of
from canoa.worker.metrics import ActionStats
from canoa.worker.offer import RECOUNTED_S, Encoded, Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.action import Action
    from canoa.vocabulary import Layer
    from canoa.wire.compression_policy import CompressionPolicy
    from canoa.wire.task import Task
    from canoa.worker.callers import Callers
    from canoa.worker.settling import Settler

log = get_logger(__name__)


class PoolOffer(Offer):
    def __init__(
        self,
        action: Action[..., Any, Any],
        settler: Settler,
        callers: Callers,
        *,
        node_id: str,
        max_payload_bytes: int,
        layer: Layer,
        compression: CompressionPolicy,
    ) -> None:
        super().__init__(
            action,
            settler,
            policy=action.policy,
            stats=ActionStats(),
            estimate=RunEstimate(),
            queue=topology.action_queue_name(action.name),
            max_payload_bytes=max_payload_bytes,
        )
        self.suspect_queue = topology.suspect_queue_name(action.name)
        self.consumers: list[Consumer] = []
        self.prefetch = 0
        self._callers = callers
        self._layer = layer
        self._compression = compression
        self._node_id = node_id

    # --- Ends -----------------------------------------------------------------------------------

    def succeed(self, known: Task, delivery: Delivery, value: Any) -> None:
        content_type = self.action.content_type
        if isinstance(value, Encoded):
            body, content_type = value.body, ContentType.JSON
        else:
            body = self.action.signature.result.encode(value, content_type)
        reply_to = known.message.reply_to
        if reply_to is None:
            self._settler.done(delivery)
        else:
            what = f"the result of {self.name}"
            packed, encoding = packing.pack(
                body, self.max_payload_bytes, what, layer=self._layer, policy=self._compression
            )
            answer = result.success_message(
                known.id, packed, content_type.value, encoding, persistent=known.message.persistent
            )
            gone = partial(self._caller_is_gone, known, delivery)
            self._answer(known, delivery, answer, if_gone=gone)
        self.stats.outcomes[OK] += 1

    def _answer(self, known: Task, delivery: Delivery, answer: Message, *, if_gone: Callable[[], None]) -> None:
        """To the caller, or to the recorders: those are never gone for good, so what they keep is sent until taken."""
        if known.is_kept:
            to_record = result.for_the_record(answer, known, self._node_id)
            self._settler.send_then_ack(Publication(message=to_record, key=topology.RESULTS), delivery)
        else:
            self._callers.tell(known.message.reply_to or "", answer, delivery, if_gone=if_gone)

    def _caller_is_gone(self, known: Task, delivery: Delivery) -> None:
        """Results die with their caller: that is what `reply` means."""
        log.info("result_without_caller", **telemetry.facts(known))
        self._settler.done(delivery)

    def end_badly(self, known: Task, delivery: Delivery, end: rules.End, what: result.Failure) -> None:
        """An attempt that did not succeed: again later, or the failure goes to whoever will hear it."""
        policy = self.policy_for(known)
        intent = rules.on_end(policy, known.attempt, end, time.time(), deadline_s=known.deadline_s, rand=random())
        match intent:
            case rules.Retry(attempt=attempt, delay_s=delay_s):
                self._retry(known, delivery, attempt, delay_s, what)
            case rules.Fail(kind=kind):
                self.fail(known, delivery, kind, what)
            case rules.Finish():
                raise AssertionError("a bad end cannot finish")

    def _retry(self, known: Task, delivery: Delivery, attempt: int, delay_s: float, what: result.Failure) -> None:
        self.stats.outcomes[Outcome.RETRIED] += 1
        self.stats.retries += 1
        rung_s = pick_rung(delay_s, topology.RUNGS_S, random())
        telemetry.failed(what, Outcome.RETRIED)
        log.info("task_retries", **telemetry.facts(known), attempt=attempt, delay_s=rung_s, error=what.message)
        message = task.again(known.message, attempt=attempt)
        waiting = Publication(message=message, exchange=topology.rung_name(rung_s), key=self.queue)
        self._settler.send_then_ack(waiting, delivery, if_unsendable=partial(self._set_aside, delivery))

    def fail(self, known: Task, delivery: Delivery, outcome: Outcome, what: result.Failure) -> None:
        """To the caller; where there is none, or it is gone, to the dead letters. Poison goes to both. Of a kept task
        the recorder makes a dead letter itself."""
        self.stats.outcomes[outcome] += 1
        telemetry.failed(what, outcome)
        log.warning(
            "task_failed",
            **telemetry.facts(known),
            attempt=known.attempt,
            outcome=outcome.value,
            error=f"{what.error_type}: {what.message}" if what.error_type else what.message,
            **({"traceback": what.traceback} if what.traceback else {}),
        )
        reply_to = known.message.reply_to
        bury = partial(self._bury, known.message, delivery, outcome, what)
        if reply_to is None:
            bury()
            return
        told = result.failure_message(known.id, outcome, what, persistent=known.message.persistent)
        if outcome is Outcome.POISONED and not known.is_kept:
            self._settler.send(Publication(message=told, key=reply_to), delivery, then=bury, if_unroutable=bury)
        else:
            self._answer(known, delivery, told, if_gone=bury)

    def poison(self, known: Task, delivery: Delivery, why: str) -> None:
        what = result.failure(f"{why}; it waits among the dead letters", attempts=known.attempt)
        self.fail(known, delivery, Outcome.POISONED, what)

    def skip(self, known: Task, delivery: Delivery) -> None:
        """Cancelled before it started. Its handle has ended already; a store may not have heard."""
        self.stats.outcomes[Outcome.CANCELLED] += 1
        log.info("task_skipped", **telemetry.facts(known), reason="cancelled")
        if known.is_kept:
            what = result.failure("cancelled before it started", attempts=known.attempt)
            told = result.failure_message(known.id, Outcome.CANCELLED, what)
            self._answer(known, delivery, told, if_gone=partial(self._settler.done, delivery))
        else:
            self._settler.done(delivery)

    def refuse_message(self, delivery: Delivery, why: str) -> None:
        """Not even a task: nothing in it can be trusted, so no answer, but a dead letter that says why."""
        self.stats.outcomes[Outcome.REFUSED] += 1
        log.warning("message_refused", action=self.name, reason=why)
        if delivery.message.reply_to == topology.RESULTS:
            self._refuse_kept(delivery, why)
        else:
            self._bury(self._with_id(delivery.message), delivery, Outcome.REFUSED, result.failure(why))

    def _refuse_kept(self, delivery: Delivery, why: str) -> None:
        """The store has its message, makes the dead letter itself, and waits for a result."""
        message = self._with_id(delivery.message)
        known = task.Task(id=TaskId(message.message_id or ""), action=self.name, message=message, run=run_of(message))
        told = result.failure_message(known.id, Outcome.REFUSED, result.failure(why))
        self._answer(known, delivery, told, if_gone=partial(self._settler.done, delivery))

    def recount(self, known: Task, delivery: Delivery, crashes: int, *, as_suspect: bool) -> None:
        log.warning("task_redelivered", **telemetry.facts(known), crashes=crashes, runs_alone=as_suspect)
        queue = self.suspect_queue if as_suspect else self.queue
        message = task.again(known.message, crashes=crashes)
        aside = partial(self._set_aside, delivery)
        self._settler.send_then_ack(ladder.towards(queue, message, RECOUNTED_S), delivery, if_unsendable=aside)

    def hand_back(self, delivery: Delivery) -> None:
        """Untouched, to the queue it came from. By publishing: a requeued message would look like a crash."""
        if delivery.is_settled:
            self._settler.dropped()
            return
        message = self._with_id(delivery.message)
        self._settler.send_then_ack(Publication(message=message, key=self._home(delivery)), delivery)

    def _home(self, delivery: Delivery) -> str:
        """Not by its own key: another program's exchange may have brought it, where that key means something else."""
        return self.suspect_queue if delivery.key == self.suspect_queue else self.queue

    def wait(self, delivery: Delivery, wait_s: float) -> None:
        waiting = ladder.towards(self._home(delivery), task.again(self._with_id(delivery.message)), wait_s)
        self._settler.send_then_ack(waiting, delivery, if_unsendable=partial(self._set_aside, delivery))

    def _set_aside(self, delivery: Delivery, why: str) -> None:
        """It cannot be sent on as it is: a dead letter without the headers that others gave it."""
        log.error("message_set_aside", action=self.name, message_id=delivery.message.message_id, reason=why)
        if delivery.message.reply_to == topology.RESULTS:
            self._refuse_kept(delivery, why)
        else:
            bare = msgspec.structs.replace(self._with_id(delivery.message), headers={})
            self._bury(bare, delivery, Outcome.REFUSED, result.failure(why))

    def _bury(self, message: Message, delivery: Delivery, reason: Outcome, what: result.Failure) -> None:
        letter = result.dead_letter(
            message, reason=reason, what=what, node=self._node_id, origin=self.queue, now_s=time.time()
        )
        dead = Publication(message=letter, exchange=topology.DEAD, key=self.queue)
        aside = partial(self._set_aside, delivery) if message.headers else None
        self._settler.send_then_ack(dead, delivery, if_unsendable=aside)

    def _with_id(self, message: Message) -> Message:
        """Publishing needs one; a task has one, but whatever else came to its queue may not."""
        if message.message_id:
            return message
        return msgspec.structs.replace(message, message_id=made_up_id(self.queue, message.body))
