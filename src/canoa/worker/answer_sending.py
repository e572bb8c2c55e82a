"""Brings answers to the managers: at once while the link is up, else over the outbox. Then deliveries are acknowledged.

While the link is up nothing is written: an answer that is confirmed within a moment never touches the disk. One that is
not goes into the outbox, and what follows it goes there at once, until something is confirmed again.
Killed before that, the worker leaves its deliveries to the broker, which gives them out again. With `always` every
answer is on disk before it is sent, and such a delivery is answered from there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.bundled import PartDelivery
from canoa.broker.port import Publication
from canoa.errors import BrokerUnreachable, DeliveryUnknown, Unroutable
from canoa.execution.outcome import OK
from canoa.logs import get_logger
from canoa.repeating import is_lasting
from canoa.wire import packing, sapparchi
from canoa.wire.bundle import MAX_PARTS, packed
from canoa.worker.forwarding import Forwarder
from canoa.worker.outbox import Dropped, Entry, Kept
from canoa.worker.settling import REPEAT_AFTER_S

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Message, PublishOutcome
    from canoa.errors import CanoaError
    from canoa.wire.compression_policy import CompressionRule
    from canoa.worker.absorbing import InHand, Requests
    from canoa.worker.answer_way import AnyWay
    from canoa.worker.outbox_writer import OutboxWriter
    from canoa.worker.recent import Recent
    from canoa.worker.settling import Settler

log = get_logger(__name__)

MOMENT_S: Final = 0.5
"""How long a confirm may take before the answer is written down. Shorter writes while a busy broker only thinks; longer
loses more work to a power cut."""


class AnswerSender:
    """`broker`: the settler's own. `way`: by which answers travel; uplinks put together by themselves what may go
    together. `always`: see above. `recent`: remembers what was told."""

    def __init__(
        self,
        broker: Broker,
        settler: Settler,
        requests: Requests,
        *,
        way: AnyWay,
        outbox: OutboxWriter | None,
        always: bool,
        recent: Recent | None,
        compression: CompressionRule | None,
    ) -> None:
        self._broker = broker
        self._settler = settler
        self._requests = requests
        self._outbox = outbox
        self._always = always
        self._recent = recent
        self._compression = compression
        self._way = way
        self._forwarder = None if outbox is None else Forwarder(outbox, self._way, on_sent=self._on_free)
        self._loop = asyncio.get_running_loop()
        self._together: dict[str, list[InHand]] = {}  # since this turn of the loop, by queue
        self._watched: dict[InHand, float] = {}  # since when it flies
        self._watching: asyncio.TimerHandle | None = None
        self._is_closed = False  # the way: nothing was confirmed since something was not
        self._is_stopped = False

    def start(self) -> None:
        """Send what an earlier start left behind."""
        if self._forwarder is not None:
            self._forwarder.wake()

    def stop(self) -> None:
        """Send nothing of the outbox any more: the next start does. What is not there goes back to its broker."""
        self._is_stopped = True
        if self._watching is not None:
            self._watching.cancel()
        if self._forwarder is not None:
            self._forwarder.stop()

    def send(self, owed: InHand) -> None:
        """What is in hand has its answer now."""
        if self._outbox is not None and self._can_keep(owed) and (self._always or self._is_closed):
            self._keep(owed)
        elif isinstance(owed.asked.delivery, PartDelivery) and self._way.is_the_broker:
            self._send_soon(owed, _wanted_at(owed.asked.delivery))
        else:
            self._send_alone(owed)

    # --- Sending ----------------------------------------------------------------------------------------

    def _send_soon(self, owed: InHand, queue: str) -> None:
        """Who sends bundles reads bundles: answers to what came in them go in them."""
        if not self._together:
            self._loop.call_soon(self._end_turn)
        together = self._together.setdefault(queue, [])
        together.append(owed)
        if len(together) >= MAX_PARTS:
            self._send_together(queue, self._together.pop(queue))

    def _end_turn(self) -> None:
        together, self._together = self._together, {}
        for queue, owed in together.items():
            self._send_together(queue, owed)

    def _send_together(self, queue: str, owed: list[InHand]) -> None:
        at = 0
        for message, count in packed([self._outgoing(each) for each in owed], are_within_bounds=True):
            together, at = owed[at : at + count], at + count
            if count == 1:
                self._send_alone(together[0])
                continue
            for each in together:
                self._begin_flight(each)
            # Not over the published exchange, where others may listen who know nothing of bundles.
            bundle = Publication(message=message, key=queue)
            self._broker.post(bundle, partial(self._on_outcomes, together))

    def _on_outcomes(self, together: list[InHand], outcome: PublishOutcome) -> None:
        is_link_gone = isinstance(outcome, BrokerUnreachable | DeliveryUnknown)
        for each in together:
            if outcome is None or (is_link_gone and (self._can_keep(each) or each.row is not None)):
                self._on_outcome(each, outcome)
            else:  # from here on every answer is tried for by itself
                self._send_alone(each)

    def _send_alone(self, owed: InHand) -> None:
        self._begin_flight(owed)
        self._way.send(self._outgoing(owed), partial(self._on_outcome, owed))

    def _outgoing(self, owed: InHand) -> Message:
        """As it travels: compressed, if it is large and a manager of ours asked, who reads that."""
        answer, rule = _answer(owed), self._compression
        if rule is None or len(answer.body) < rule.threshold_bytes:
            return answer
        is_ours = owed.asked.delivery.message.headers.get(sapparchi.OWNER) == sapparchi.MANAGER
        return packing.packed(answer, rule) if is_ours else answer

    def _begin_flight(self, owed: InHand) -> None:
        owed.is_flying = True
        if self._outbox is not None and (self._can_keep(owed) or owed.row is not None):
            self._watched[owed] = self._loop.time()
            if self._watching is None:
                self._watching = self._loop.call_later(MOMENT_S, self._look_up)

    def _look_up(self) -> None:
        """What has flown for longer than a moment may never arrive."""
        before_s = self._loop.time() - MOMENT_S
        overdue = [owed for owed, since_s in self._watched.items() if since_s <= before_s]
        for owed in overdue:
            del self._watched[owed]
            self._is_closed = True
            if owed.row is not None:
                self._end(owed)
            elif self._can_keep(owed):
                self._keep(owed)
        self._watching = self._loop.call_later(MOMENT_S / 2, self._look_up) if self._watched else None

    def _on_outcome(self, owed: InHand, outcome: PublishOutcome) -> None:
        owed.is_flying = False
        self._watched.pop(owed, None)
        if outcome is None:
            self._is_closed = False
            self._told(owed)
        elif isinstance(outcome, Unroutable):
            self._nobody_listens(owed)
        else:
            self._not_told(owed, outcome)

    def _told(self, owed: InHand) -> None:
        owed.is_told = True
        if self._recent is not None and owed.is_work:
            answer = _answer(owed)
            self._recent.put(owed.asked, answer, is_ok=answer.headers[sapparchi.STATUS] == OK)
        if owed.row is not None and self._forwarder is not None:
            self._forwarder.sent(owed.row)
        self._end(owed, is_answered=owed.is_work)

    def _nobody_listens(self, owed: InHand) -> None:
        """No manager ever declared where results go: whoever sent this does not want to know."""
        request = owed.asked.request
        log.warning("result_without_manager", request_id=request.request_id, action=request.action_to)
        self._is_closed = False
        self._told(owed)

    def _not_told(self, owed: InHand, outcome: CanoaError) -> None:
        if owed.row is not None and self._forwarder is not None:
            self._is_closed = True
            self._end(owed)
            self._forwarder.release(owed.row)
        elif self._can_keep(owed) and not is_lasting(outcome):
            self._is_closed = True
            self._keep(owed)
        elif owed.is_ours:
            log.warning("message_not_taken", key=topology.STEP_RESULTS, reason=str(outcome))
            wait_s = 0.0 if isinstance(outcome, DeliveryUnknown) else REPEAT_AFTER_S
            self._loop.call_later(wait_s, self._send_again, owed)
        else:
            self._end(owed)  # somebody else gets the task anyway

    def _send_again(self, owed: InHand) -> None:
        if not (owed.is_over or self._is_stopped):  # kept meanwhile
            self._send_alone(owed)

    def _on_free(self) -> None:
        self._is_closed = False

    # --- Keeping ----------------------------------------------------------------------------------------

    def _can_keep(self, owed: InHand) -> bool:
        return owed.may_keep and self._outbox is not None and self._outbox.is_usable

    def _keep(self, owed: InHand) -> None:
        """On the broker's disk too, when it gets there: it was worth one of ours."""
        assert self._outbox is not None
        owed.may_keep = False  # once
        answer = _answer(owed)
        is_ok = answer.headers[sapparchi.STATUS] == OK  # a failure is one run's own, and answers no other
        entry = Entry(
            request_id=owed.asked.id,
            action=owed.asked.request.action_to,
            attempt=owed.asked.attempt if is_ok else "",
            message=msgspec.structs.replace(answer, persistent=True),
        )
        self._outbox.put(entry, partial(self._on_kept, owed))

    def _on_kept(self, owed: InHand, outcome: Kept | Dropped) -> None:
        if isinstance(outcome, Dropped):
            self._on_not_kept(owed, outcome)
            return
        assert self._forwarder is not None
        owed.row = outcome.id
        if owed.is_told:
            self._forwarder.sent(outcome.id)
        elif owed.is_flying:
            self._forwarder.hold(outcome.id)
            self._end(owed)
        elif self._always and not self._is_closed:
            self._forwarder.hold(outcome.id)
            self._send_alone(owed)
        else:
            self._end(owed)
            self._forwarder.wake()

    def _on_not_kept(self, owed: InHand, outcome: Dropped) -> None:
        """Refused, it goes on as if there were no outbox: tried for while one of its deliveries is ours."""
        if owed.is_told or owed.is_flying:
            return
        if outcome.is_refused:
            self._send_alone(owed)
        else:
            self._end(owed)

    def _end(self, owed: InHand, *, is_answered: bool = False) -> None:
        """Acknowledge whatever brought the request; nothing else is owed. `is_answered`: a manager will hear of it,
        whatever becomes of the outbox."""
        if owed.is_over:
            return
        owed.is_over = True
        self._settler.done(owed.asked.delivery)
        for each in self._requests.end(owed.asked.id, is_answered=is_answered):
            self._settler.done(each.delivery)


def _wanted_at(delivery: PartDelivery) -> str:
    """The queue where whoever sent the bundle wants what it brings; or where all answers go."""
    wanted = delivery.whole.delivery.message.reply_to or ""
    return wanted if wanted.startswith(topology.ANSWERS_PREFIX) else topology.STEP_RESULTS


def _answer(owed: InHand) -> Message:
    assert owed.answer is not None
    return owed.answer
