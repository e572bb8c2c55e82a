"""Requests that cannot be accepted: whoever waits hears why, and so does whoever listens to final results.

Nothing of them is stored. They are acknowledged once the broker has both answers, or will never take them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.broker.posting import is_hopeless, post
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.repeating import REPEAT_AFTER_S
from canoa.vocabulary import TaskId
from canoa.wire import result
from canoa.wire.codec import ContentType

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery, PublishOutcome

log = get_logger(__name__)


class RefusedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The final result of a request that never became a task."""

    id: str  # as far as it could be read
    error: str
    status: str = Outcome.REFUSED.value


class Refusals:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()

    def refuse(self, delivery: Delivery, request_id: str, why: str) -> None:
        """`request_id`: as far as it could be read."""
        answers = [_final(RefusedRequest(id=request_id, error=why[: result.MAX_ERROR_CHARS]))]
        if delivery.message.reply_to:
            answers.append(_reply(delivery.message.reply_to, request_id, why))
        unanswered = set(range(len(answers)))
        for number, each in enumerate(answers):
            self._post(delivery, each, unanswered, number)

    def _post(self, delivery: Delivery, answer: Publication, unanswered: set[int], number: int) -> None:
        if not delivery.is_settled:  # otherwise another manager has it
            post(self._broker, answer, partial(self._on_outcome, delivery, answer, unanswered, number))

    def _on_outcome(
        self, delivery: Delivery, answer: Publication, unanswered: set[int], number: int, outcome: PublishOutcome
    ) -> None:
        if outcome is not None and not is_hopeless(outcome):
            self._loop.call_later(REPEAT_AFTER_S, self._post, delivery, answer, unanswered, number)
            return
        unanswered.discard(number)
        if not unanswered:
            delivery.settle()


def _reply(queue: str, request_id: str, why: str) -> Publication:
    what = result.failure(why, attempts=0)
    told = result.failure_message(TaskId(request_id), Outcome.REFUSED, what)
    return Publication(message=told, key=queue, mandatory=False)


def _final(refused: RefusedRequest) -> Publication:
    message = Message(
        body=msgspec.json.encode(refused),
        content_type=ContentType.JSON.value,
        expiration_s=topology.FINAL_TTL_S,
        message_id=refused.id or None,
        correlation_id=refused.id or None,
        type=Outcome.REFUSED.value,
    )
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.FINAL_RESULTS, mandatory=False)
