"""The server side of the memory broker: exchanges and queues that several `MemoryBroker`s of one process share.

Routing, dead-lettering, timers, and the one place from which consumers and publishers are called back. The rules
inside a queue are in `memory_queue.py`, those between exchanges and queues in `routing.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from canoa.broker.alarms import Alarms
from canoa.broker.dead_letters import Death, DeathReason, buried, is_endless
from canoa.broker.memory_queue import Entry, Intents, QueueState, Subscription
from canoa.broker.port import Binding, Declaration, Exchange, Publication, PublishOutcome, Queue, Relay, Settlement
from canoa.broker.routing import Queues, Router
from canoa.errors import (
    BrokerRefusedMessage,
    BrokerRefusedOperation,
    DeclarationDiffers,
    QueueMissing,
    Unroutable,
    WrongUse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

TURN = 256
"""Deliveries handed over in one turn of the event loop. More would gain little and keep others waiting."""


class MemoryHub:
    """Keeps queues and what they hold for as long as it lives, open brokers or not; timers only run with open ones.

    Belongs to the event loop of its open brokers, and with none of them open, to no loop.
    """

    def __init__(self) -> None:
        self._router = Router()
        self._queues: dict[str, QueueState] = {}
        self._intents = Intents()
        self._outcomes: list[tuple[Callable[[PublishOutcome], None], PublishOutcome]] = []
        self._members: set[object] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarms: Alarms | None = None
        self._now: Callable[[], float] = time.monotonic
        self._is_flush_due = False

    # --- Brokers come and go --------------------------------------------------------------------------

    def join(self, member: object) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._members:
                raise WrongUse("this memory hub serves brokers of another event loop; close them first")
            self._loop, self._alarms, self._now = loop, Alarms(loop), loop.time
            for queue in self._queues.values():
                self._after_change(queue)
                self._renew(queue)
        self._members.add(member)

    def leave(self, member: object) -> None:
        """The member's consumers are gone by now; its exclusive queues go here."""
        self._members.discard(member)
        for queue in [q for q in self._queues.values() if q.owner is member]:
            self._remove(queue)
        if not self._members and self._alarms is not None:
            self._alarms.clear()
            self._loop = None

    @property
    def pending_timers(self) -> int:
        return 0 if self._alarms is None else len(self._alarms)

    # --- Declarations ---------------------------------------------------------------------------------

    def declare(self, declaration: Declaration, member: object) -> None:
        match declaration:
            case Exchange():
                self._router.declare(declaration)
            case Queue():
                self._declare_queue(declaration, member)
            case Binding():
                try:
                    self.find(declaration.queue, member)
                except QueueMissing as exc:
                    raise BrokerRefusedOperation(f"cannot bind: {exc}; declare it first") from exc
                self._router.bind(declaration)
            case Relay():
                self._router.relay(declaration)

    def _declare_queue(self, spec: Queue, member: object) -> None:
        known = self._queues.get(spec.name)
        if known is None:
            _check_traits(spec)
            known = QueueState(spec, member if spec.exclusive else None, self._intents)
            self._queues[spec.name] = known
        elif self.find(spec.name, member).spec != spec:
            raise DeclarationDiffers(f"queue {spec.name!r} exists with other traits: {known.spec}, not {spec}")
        self._renew(known)

    def find(self, queue: str, member: object) -> QueueState:
        """The queue, for a member who may touch it."""
        found = self._queues.get(queue)
        if found is None:
            raise QueueMissing(queue)
        if found.owner is not None and found.owner is not member:
            raise BrokerRefusedOperation(f"queue {queue!r} is exclusive to another broker object")
        return found

    def look(self, queue: str, member: object) -> QueueState:
        """Like `find`, and a sign of life for a queue that expires: RabbitMQ's passive declare is one, too."""
        found = self.find(queue, member)
        self._renew(found)
        return found

    def delete(self, queue: str, member: object) -> None:
        if queue in self._queues:
            self._remove(self.find(queue, member))

    def _remove(self, queue: QueueState) -> None:
        queue.is_deleted = True
        del self._queues[queue.spec.name]
        self._router.remove_queue(queue.spec.name)
        if self._alarms is not None:
            self._alarms.drop(("expiry", queue))
            self._alarms.drop(("idle", queue))
        for subscription in queue.consumers:
            self._withdraw(subscription)
            if self._loop is not None:
                self._loop.call_soon(subscription.on_queue_gone)

    # --- Publishing -----------------------------------------------------------------------------------

    def post(self, publication: Publication, on_outcome: Callable[[PublishOutcome], None]) -> None:
        self._outcomes.append((on_outcome, self.publish(publication)))
        self._flush_soon()

    def publish(self, publication: Publication) -> PublishOutcome:
        message, exchange, key = publication.message, publication.exchange, publication.key
        if message.message_id is None and publication.mandatory:
            raise ValueError("a mandatory message needs a message_id")
        names = self._route(publication)
        if not names:
            return _undelivered(publication, is_exchange_missing=names is None)
        now = self._now()
        is_kept = True
        for name in names:
            queue = self._queues[name]
            is_kept &= queue.put(message, exchange, key, now)
            self._after_change(queue)
        if is_kept:
            return None
        return BrokerRefusedMessage(f"a queue is full and refuses more (exchange {exchange!r}, key {key!r})")

    def _route(self, publication: Publication) -> Queues | None:
        if publication.exchange:
            return self._router.route(publication.exchange, publication.key, publication.message.headers)
        return (publication.key,) if publication.key in self._queues else ()

    def _bury(self, queue: QueueState, entry: Entry, reason: DeathReason) -> None:
        """Publish a dead letter. Nobody waits for an answer: what cannot be routed, or is refused, is dropped."""
        spec = queue.spec
        death = Death(queue=spec.name, reason=reason, exchange=entry.exchange, key=entry.key, time_s=round(time.time()))
        letter = Publication(
            message=buried(entry.message, death),
            exchange=spec.dead_letter_exchange or "",
            key=entry.key if spec.dead_letter_key is None else spec.dead_letter_key,
        )
        for name in self._route(letter) or ():
            if not is_endless(letter.message, name):
                target = self._queues[name]
                target.put(letter.message, letter.exchange, letter.key, self._now())
                self._arm_expiry(target)

    # --- Consuming ------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        subscription.queue.attach(subscription, self._now())
        self._renew(subscription.queue)
        self._after_change(subscription.queue)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take nothing new: what was assigned and not handed over yet goes back, as if it had never left."""
        queue = subscription.queue
        if queue.is_deleted:
            return
        for entry in self._withdraw(subscription):
            queue.put_back(entry)
        queue.detach(subscription, self._now())
        self._renew(queue)
        self._after_change(queue)

    def take_back(self, subscription: Subscription) -> None:
        """Its link is gone: all it holds goes back to the queue, to be delivered again."""
        queue = subscription.queue
        held = list(subscription.held)
        subscription.held.clear()
        if queue.is_deleted:
            return
        for entry in held:
            queue.put_back(entry.again())
        queue.feed(self._now())
        self._after_change(queue)

    def set_prefetch(self, subscription: Subscription, prefetch: int) -> None:
        subscription.queue.set_prefetch(subscription, prefetch, self._now())
        self._after_change(subscription.queue)

    def settle(self, subscription: Subscription, entry: Entry, how: Settlement) -> bool:
        queue = subscription.queue
        is_done = queue.settle(subscription, entry, how, self._now())
        self._after_change(queue)
        return is_done

    def settle_through(self, subscription: Subscription, entry: Entry, how: Settlement) -> bool:
        queue = subscription.queue
        is_done = queue.settle_through(subscription, entry, how, self._now())
        self._after_change(queue)
        return is_done

    def _withdraw(self, subscription: Subscription) -> list[Entry]:
        """Take what was not handed over yet out of the outbox and out of the consumer's hands."""
        outbox = self._intents.deliveries
        withdrawn = [entry for to, entry in outbox if to is subscription]
        if withdrawn:
            kept = [(to, entry) for to, entry in outbox if to is not subscription]
            outbox.clear()
            outbox.extend(kept)
            for entry in withdrawn:
                del subscription.held[entry]
        return withdrawn

    # --- Acting on what queues want -------------------------------------------------------------------

    def _after_change(self, queue: QueueState) -> None:
        intents = self._intents
        while intents.dead:
            self._bury(*intents.dead.popleft())
        if queue.has_expiring:
            self._arm_expiry(queue)
        if intents.deliveries and not self._is_flush_due:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due and self._loop is not None:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Call back publishers and consumers. What the calls cause waits for the next turn, once this one is full."""
        outcomes, self._outcomes = self._outcomes, []
        for on_outcome, outcome in outcomes:
            try:
                on_outcome(outcome)
            except Exception:
                log.exception("on_outcome_failed")
        outbox = self._intents.deliveries
        budget = TURN
        while outbox and budget:
            budget -= 1
            subscription, entry = outbox.popleft()
            try:
                subscription.on_entry(entry)
            except Exception:
                # The consumer promised not to raise. The delivery stays in its hands, unsettled: given back at once
                # it would fail again and again; this way it shows, and returns when the broker object closes.
                log.exception("on_delivery_failed", extra={"queue": subscription.queue.spec.name})
        self._is_flush_due = False
        if outbox or self._outcomes:
            self._flush_soon()

    def _arm_expiry(self, queue: QueueState) -> None:
        """Wake up when the head's time is over. An alarm that rings too early does no harm and sets the next one."""
        when = queue.next_expiry()
        if when is None or self._alarms is None or self._loop is None:
            return
        armed = self._alarms.due(("expiry", queue))
        if armed is None or when < armed:
            self._alarms.set(("expiry", queue), when, lambda: self._expire(queue))

    def _expire(self, queue: QueueState) -> None:
        queue.expire(self._now())
        self._after_change(queue)

    def _renew(self, queue: QueueState) -> None:
        """Start the time after which an unused queue is removed anew, or stop it while there are consumers."""
        if queue.spec.expires_s is None or self._alarms is None or self._loop is None:
            return
        self._alarms.drop(("idle", queue))
        if not queue.consumers:
            when = self._now() + queue.spec.expires_s
            self._alarms.set(("idle", queue), when, lambda: self._remove(queue))


def _undelivered(publication: Publication, *, is_exchange_missing: bool) -> PublishOutcome:
    if is_exchange_missing:
        return Unroutable(f"exchange {publication.exchange!r} does not exist; declare it before publishing")
    if publication.mandatory:
        return Unroutable(f"no queue is bound at exchange {publication.exchange!r} for key {publication.key!r}")
    return None


def _check_traits(spec: Queue) -> None:
    """Refuse what RabbitMQ refuses."""
    wrong = None
    if not spec.name or spec.name.startswith("amq."):
        wrong = "the name is reserved for the broker"
    elif spec.quorum and (spec.exclusive or spec.max_priority is not None):
        wrong = "a quorum queue can be neither exclusive nor have priorities"
    elif spec.max_priority is not None and not 1 <= spec.max_priority <= 255:
        wrong = f"max_priority is {spec.max_priority}, not 1..255"
    elif spec.expires_s is not None and spec.expires_s <= 0:
        wrong = f"expires_s is {spec.expires_s}, not positive"
    elif spec.dead_letter_key is not None and spec.dead_letter_exchange is None:
        wrong = "dead_letter_key without a dead_letter_exchange"
    if wrong is not None:
        raise BrokerRefusedOperation(f"queue {spec.name!r} cannot be declared: {wrong}")
