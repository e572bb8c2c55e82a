"""How a node answers a manager: by a message as published, with what Canoa adds in its headers.

Also what comes again: it gets the answer that there is, or will be. How answers travel is in `answer_sending.py`: each
is confirmed, or on disk, before the delivery it answers is acknowledged.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Settlement
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.wire import result, sapparchi
from canoa.wire.codec import ContentType
from canoa.wire.ids import made_up_id
from canoa.wire.sapparchi import NodeMessage
from canoa.worker.absorbing import Asked, Requests
from canoa.worker.answer_sending import AnswerSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Broker, Delivery
    from canoa.wire.compression_policy import CompressionRule
    from canoa.wire.result import Failure
    from canoa.worker.answer_way import AnyWay
    from canoa.worker.outbox import Entry
    from canoa.worker.outbox_writer import OutboxWriter
    from canoa.worker.recent import Recent
    from canoa.worker.settling import Settler

log = get_logger(__name__)

_JSON: Final = ContentType.JSON.value  # a member's `value` is slow to look up
MAX_ID_BYTES = 255
"""What AMQP allows for a message id. A longer request id still stands in the body."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request."""

    status: str  # an `Outcome`, or `sapparchi.RETURNED`
    data: str  # JSON
    started_s: float | None = None  # by managers' time
    error_type: str = ""
    traceback: str = ""
    is_final: bool = False  # another attempt would be pointless


def failure(status: str, what: Failure, *, started_s: float | None = None, is_final: bool = False) -> Answer:
    return Answer(
        status=status,
        data=sapparchi.encode({"error": _sendable(what.message)}).decode(),
        started_s=started_s,
        error_type=_sendable(what.error_type),
        traceback=_sendable(what.traceback),
        is_final=is_final,
    )


class Answerer:
    """`broker`: the settler's own. `way`: to the managers. `outbox`: where answers wait while no way is open; None:
    nowhere. `recent`: answers that may be asked for again; None: nobody has another way to. `compression`: of answers
    to managers of ours, which read it. `ahead_ms`: of managers' time, this clock."""

    def __init__(
        self,
        broker: Broker,
        settler: Settler,
        node_id: str,
        *,
        way: AnyWay,
        ahead_ms: Callable[[], int] = lambda: 0,
        outbox: OutboxWriter | None = None,
        always_keep: bool = False,
        recent: Recent | None = None,
        compression: CompressionRule | None = None,
    ) -> None:
        self.absorbed = 0  # requests that came again, and did not run again
        self.requests = Requests()
        self.sender = AnswerSender(
            broker,
            settler,
            self.requests,
            way=way,
            outbox=outbox,
            always=always_keep,
            recent=recent,
            compression=compression,
        )
        self._recent = recent
        self._settler = settler
        self._node_id = node_id
        self.ahead_ms = ahead_ms
        self._outbox = outbox

    def answer(self, request: NodeMessage, delivery: Delivery, answer: Answer) -> None:
        """Then acknowledge the delivery, which is no longer ours afterwards."""
        self.answer_to(Asked(request, delivery), answer)

    def answer_to(self, asked: Asked, answer: Answer) -> None:
        request = asked.request
        message = Message(
            body=sapparchi.encode(
                NodeMessage(action_to=request.action_to, request_id=request.request_id, message_data=answer.data)
            ),
            content_type=_JSON,
            headers=self._headers(answer),
            persistent=asked.delivery.message.persistent,
            message_id=message_id_of(request),
        )
        self._send(asked, message)

    def _send(self, asked: Asked, message: Message) -> None:
        """To all who ask for it."""
        in_hand = self.requests.in_hand(asked)
        if in_hand.asked is not asked or in_hand.answer is not None:  # another copy of it; refused twice, say
            self.requests.join(in_hand, asked)
            return
        also = in_hand.also
        in_hand.answer = message
        in_hand.is_work = in_hand.may_keep = message.headers[sapparchi.STATUS] != sapparchi.RETURNED
        if also:
            in_hand.also = tuple(each for each in also if each.id == asked.id)
        self.sender.send(in_hand)
        for each in also:
            if each.id != asked.id:
                self._serve(each, message)

    def _headers(self, answer: Answer) -> dict[str, HeaderValue]:
        headers: dict[str, HeaderValue] = {
            sapparchi.STATUS: answer.status,
            result.NODE: self._node_id,
            sapparchi.ENDED: int(time.time() * 1000) - self.ahead_ms(),
        }
        if answer.started_s is not None:
            headers[result.STARTED] = int(answer.started_s * 1000)
        if answer.error_type:
            headers[sapparchi.ERROR_TYPE] = answer.error_type
        if answer.traceback:
            headers[result.TRACEBACK] = answer.traceback
        if answer.is_final:
            headers[sapparchi.NO_RETRY] = True
        return headers

    # --- Requests that come again -----------------------------------------------------------------------

    def is_known(self, asked: Asked) -> bool:
        """It runs here, or was answered from here: `absorb` is the end of it, and it must not run."""
        return (
            self.requests.is_known(asked)
            or (self._recent is not None and self._recent.find(asked) is not None)
            or (self._outbox is not None and self._outbox.knows(asked.id, asked.attempt))
        )

    def absorb(self, asked: Asked) -> None:
        """It gets the answer of the one that is known, and is no longer ours afterwards."""
        self.absorbed += 1
        log.debug("request_absorbed", request_id=asked.id, action=asked.request.action_to)
        known = self.requests.find(asked)
        if known is not None:
            if known.answer is None or known.asked.id == asked.id:
                self.requests.join(known, asked)
            else:
                self._serve(asked, known.answer)
        elif self._asks_for_nothing(asked):
            self._settler.done(asked.delivery)
        elif self._recent is not None and (answer := self._recent.find(asked)) is not None:
            self._serve(asked, answer)
        else:
            self._look_up(asked)

    def _asks_for_nothing(self, asked: Asked) -> bool:
        """Its answer is with the broker, or goes there from the outbox. Where there are other ways, that may be lost,
        and who sends it once more asks for it; but not a broker that only did not hear that we had its delivery."""
        is_told = self.requests.is_answered(asked.id) or (self._outbox is not None and asked.id in self._outbox)
        return is_told and (self._recent is None or asked.delivery.redelivered)

    def _look_up(self, asked: Asked) -> None:
        """In the outbox: under its own id, or under that of the same attempt."""
        outbox = self._outbox
        if outbox is None:
            self._on_found(asked, None)
            return
        kept_as = asked.id if asked.id in outbox else outbox.answered_as(asked.attempt)
        outbox.find(kept_as or "", partial(self._on_found, asked))

    def abandon(self, asked: Asked) -> None:
        """It ends here without an answer: whoever waited for that comes again. Nobody waits for what was not begun."""
        if self.requests.is_begun(asked):
            for each in self.requests.end(asked.id, is_answered=False):
                self._give_back(each)

    def _on_found(self, asked: Asked, entry: Entry | None) -> None:
        if entry is not None:
            self._serve(asked, entry.message)
        elif self.requests.is_answered(asked.id):  # a manager that has no answer lets it run again
            self.answer_to(asked, failure(sapparchi.RETURNED, result.failure("its answer is no longer here")))
        else:
            self._give_back(asked)

    def _serve(self, asked: Asked, answer: Message) -> None:
        """The answer to the same request, or to another one for the same attempt; to that not what says only the first
        one's own fate."""
        said = sapparchi.decode(answer.body, NodeMessage)
        is_own_fate = answer.headers[sapparchi.STATUS] in (sapparchi.RETURNED, Outcome.CANCELLED)
        if is_own_fate and said.request_id != asked.id:
            self._give_back(asked)
            return
        body = sapparchi.encode(msgspec.structs.replace(said, request_id=asked.id))
        self._send(asked, msgspec.structs.replace(answer, body=body, message_id=message_id_of(asked.request)))

    def _give_back(self, asked: Asked) -> None:
        asked.delivery.settle(Settlement.REQUEUE)
        self._settler.dropped()


def message_id_of(request: NodeMessage) -> str:
    usable = len(request.request_id.encode(errors="replace")) <= MAX_ID_BYTES
    return request.request_id if usable else made_up_id(topology.NODE_UNICAST, request.request_id.encode())


def _sendable(text: str) -> str:
    """An exception's text may hold what no encoding has a place for."""
    return text.encode(errors="replace").decode()
