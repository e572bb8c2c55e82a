"""One action as managers reach it, through the node's own queue: it runs as for the pool, and every end is an answer.

A manager owns the task: nothing is retried here, nothing is a dead letter, and what did not start is given back to it.
Which message is for which action is in `unicast.py`.
"""

from __future__ import annotations

import time
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any

import msgspec

from canoa import telemetry
from canoa.broker import ladder
from canoa.broker.bundled import PartDelivery
from canoa.broker.port import Delivery, Message, Settlement
from canoa.errors import PayloadTooLarge
from canoa.execution import rules
from canoa.execution.outcome import OK, Outcome
from canoa.logs import get_logger
from canoa.wire import result, sapparchi, task
from canoa.worker.absorbing import Asked
from canoa.worker.answering import Answer, failure, message_id_of
from canoa.worker.offer import RECOUNTED_S, Encoded, Offer
from canoa.worker.uplinks.port import brought_by_uplink

if TYPE_CHECKING:
    from canoa.execution.policy import Policy
    from canoa.execution.prefetch import RunEstimate
    from canoa.wire.sapparchi import NodeMessage
    from canoa.wire.task import Task
    from canoa.worker.answering import Answerer
    from canoa.worker.settling import Settler
    from canoa.worker.waiting_here import WaitingHere

log = get_logger(__name__)


class RoutedDelivery:
    """A delivery whose message reads like the pool's: its body is the arguments, its id the request's."""

    __slots__ = ("asked", "message", "origin", "request")

    def __init__(self, origin: Delivery, request: NodeMessage, message: Message) -> None:
        self.origin = origin
        self.request = request
        self.message = message
        self.asked = Asked(request, origin)

    @property
    def exchange(self) -> str:
        return self.origin.exchange

    @property
    def key(self) -> str:
        return self.origin.key

    @property
    def redelivered(self) -> bool:
        return self.origin.redelivered

    @property
    def is_settled(self) -> bool:
        return self.origin.is_settled

    @property
    def is_suspect(self) -> bool:
        return self.origin.message.headers.get(sapparchi.SUSPECT) is True

    def held_s(self, now_s: float) -> float:
        """How long a broker waits for a word on the bundle that it came in; 0 for what came alone, or by an uplink."""
        if isinstance(self.origin, PartDelivery) and brought_by_uplink(self.origin) is None:
            return now_s - self.origin.whole.opened_s
        return 0.0

    def settle(self, how: Settlement = Settlement.ACK) -> bool:
        return self.origin.settle(how)

    def as_it_came(self) -> Message:
        """For sending it to ourselves once more."""
        came = self.origin.message
        return came if came.message_id else msgspec.structs.replace(came, message_id=message_id_of(self.request))


_delivery: type[Delivery] = RoutedDelivery


def _routed(delivery: Delivery) -> RoutedDelivery:
    """What a routed offer is given is never anything else."""
    assert isinstance(delivery, RoutedDelivery)
    return delivery


class RoutedOffer(Offer):
    """`waiting`: for what an uplink brought. `estimate`: of everything the node's queue brings, since that is what its
    prefetch is for."""

    is_routed = True

    def __init__(
        self,
        pool: Offer,
        settler: Settler,
        answerer: Answerer,
        *,
        waiting: WaitingHere,
        queue: str,
        estimate: RunEstimate,
    ) -> None:
        super().__init__(
            pool.action,
            settler,
            policy=msgspec.structs.replace(pool.policy, retries=0),
            stats=pool.stats,
            estimate=estimate,
            queue=queue,
            max_payload_bytes=pool.max_payload_bytes,
        )
        self._answerer = answerer
        self._waiting = waiting

    def now_s(self) -> float:
        """By managers' time, like the deadlines that they send."""
        return super().now_s() - self._answerer.ahead_ms() / 1000

    def policy_for(self, known: Task) -> Policy:
        """Managers send the time limit along, and mostly the action's own."""
        return self.policy if known.timeout_s == self.policy.timeout_s else super().policy_for(known)

    # --- What comes again -----------------------------------------------------------------------

    def is_known(self, delivery: Delivery) -> bool:
        """To be absorbed, not to be run."""
        return self._answerer.is_known(_routed(delivery).asked)

    def absorb(self, delivery: Delivery) -> None:
        """Give a known one the answer that there is, or will be."""
        self._answerer.absorb(_routed(delivery).asked)

    def absorbs(self, delivery: Delivery) -> bool:
        if not self.is_known(delivery):
            return False
        self.absorb(delivery)
        return True

    def begun(self, delivery: Delivery) -> None:
        self._answerer.requests.in_hand(_routed(delivery).asked)

    # --- Ends -----------------------------------------------------------------------------------

    def succeed(self, known: Task, delivery: Delivery, value: Any) -> None:
        body = value.body if isinstance(value, Encoded) else self.action.signature.result.encode(value)
        if len(body) > self.max_payload_bytes:
            raise PayloadTooLarge(f"the result of {self.name}", len(body), self.max_payload_bytes)
        self._tell(delivery, Answer(status=OK, data=body.decode(), started_s=known.started_s))
        self.stats.outcomes[OK] += 1

    def end_badly(self, known: Task, delivery: Delivery, end: rules.End, what: result.Failure) -> None:
        """The manager decides whether there is a next attempt; it hears what this one says about it."""
        intent = rules.on_end(self.policy, known.attempt, end, time.time(), deadline_s=None, rand=random())
        assert isinstance(intent, rules.Fail)
        self._fail(known, delivery, intent.kind, what, is_final=end == rules.Raised(retryable=False))

    def fail(self, known: Task, delivery: Delivery, outcome: Outcome, what: result.Failure) -> None:
        self._fail(known, delivery, outcome, what, is_final=False)

    def _fail(self, known: Task, delivery: Delivery, outcome: Outcome, what: result.Failure, *, is_final: bool) -> None:
        self.stats.outcomes[outcome] += 1
        telemetry.failed(what, outcome)
        error = f"{what.error_type}: {what.message}" if what.error_type else what.message
        log.warning("step_failed", **telemetry.facts(known), attempt=known.attempt, outcome=outcome.value, error=error)
        self._tell(delivery, failure(outcome, what, started_s=known.started_s, is_final=is_final))

    def poison(self, known: Task, delivery: Delivery, why: str) -> None:
        self.fail(known, delivery, Outcome.POISONED, result.failure(why, attempts=known.attempt))

    def skip(self, known: Task, delivery: Delivery) -> None:
        self.stats.outcomes[Outcome.CANCELLED] += 1
        self._tell(delivery, failure(Outcome.CANCELLED, result.failure("cancelled before it started")))

    def refuse_message(self, delivery: Delivery, why: str) -> None:
        self.stats.outcomes[Outcome.REFUSED] += 1
        log.warning("message_refused", action=self.name, reason=why)
        self._tell(delivery, failure(Outcome.REFUSED, result.failure(why)))

    def _tell(self, delivery: Delivery, answer: Answer) -> None:
        self._answerer.answer_to(_routed(delivery).asked, answer)

    # --- Not here, not now ----------------------------------------------------------------------

    def hand_back(self, delivery: Delivery) -> None:
        """To the manager: this node leaves, and another may have it."""
        if delivery.is_settled:
            self._answerer.abandon(_routed(delivery).asked)
            self._settler.dropped()
        elif self._is_in_other_hands(delivery):
            self.absorb(delivery)
        else:
            self._tell(delivery, failure(sapparchi.RETURNED, result.failure("its node leaves")))

    def recount(self, known: Task, delivery: Delivery, crashes: int, *, as_suspect: bool) -> None:
        log.warning("task_redelivered", **telemetry.facts(known), crashes=crashes, runs_alone=as_suspect)
        message = task.again(_routed(delivery).as_it_came(), crashes=crashes)
        if as_suspect:
            message = msgspec.structs.replace(message, headers={**message.headers, sapparchi.SUSPECT: True})
        self._send_to_itself(delivery, message, RECOUNTED_S)

    def wait(self, delivery: Delivery, wait_s: float) -> None:
        if self._is_in_other_hands(delivery):
            self.absorb(delivery)
            return
        self._send_to_itself(delivery, task.again(_routed(delivery).as_it_came()), wait_s)

    def _is_in_other_hands(self, delivery: Delivery) -> bool:
        """Another copy of it was begun while this one waited: what is said of this one would be said of that."""
        return self.is_known(delivery) and not self._answerer.requests.is_begun(_routed(delivery).asked)

    def requeue(self, delivery: Delivery) -> None:
        self._answerer.abandon(_routed(delivery).asked)
        super().requeue(delivery)

    def _send_to_itself(self, delivery: Delivery, message: Message, wait_s: float) -> None:
        routed = _routed(delivery)
        self._answerer.abandon(routed.asked)
        brought = brought_by_uplink(routed.origin)
        if brought is None:
            publication = ladder.towards(self.queue, message, wait_s)
            self._settler.send_then_ack(publication, delivery, if_unsendable=partial(self.refuse_message, delivery))
        else:
            self._waiting.put(brought.again(message), wait_s)
            self._settler.done(delivery)
