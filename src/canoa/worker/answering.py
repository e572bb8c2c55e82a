"""How a node answers a manager: by a message as published, with what Canoa adds in its headers.

The answer is confirmed before the delivery it answers is acknowledged. Who sends bundles reads bundles: answers to what
came in them go in them, as many as end in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from canoa.broker import topology
from canoa.broker.bundled import PartDelivery
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.errors import WrongUse
from canoa.logs import get_logger
from canoa.wire import packing, result, sapparchi
from canoa.wire.bundle import packed
from canoa.wire.codec import ContentType
from canoa.wire.ids import made_up_id
from canoa.wire.sapparchi import NodeMessage
from canoa.worker.settling import REPEAT_AFTER_S
from canoa.worker.uplinks.port import UplinkDelivery

if TYPE_CHECKING:
    from canoa.broker.port import Broker, Delivery, PublishOutcome
    from canoa.wire.compression_policy import CompressionRule
    from canoa.wire.result import Failure
    from canoa.worker.settling import Settler
    from canoa.worker.uplinks.port import Uplink

log = get_logger(__name__)

_JSON: Final = ContentType.JSON.value  # a member's `value` is slow to look up
MAX_ID_BYTES = 255
"""What AMQP allows for a message id. A longer request id still stands in the body."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request."""

    status: str  # an `Outcome`, or `sapparchi.RETURNED`
    data: str  # JSON
    started_s: float | None = None
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


class _Owed(NamedTuple):
    message: Message
    request: NodeMessage
    delivery: Delivery


class Answerer:
    """`broker`: the settler's own. `compression`: of answers to managers of ours, which read it."""

    def __init__(
        self, broker: Broker, settler: Settler, node_id: str, *, compression: CompressionRule | None = None
    ) -> None:
        self._broker = broker
        self._settler = settler
        self._node_id = node_id
        self._compression = compression
        self._loop = asyncio.get_running_loop()
        self._owed: list[_Owed] = []  # since this turn of the loop

    def answer(self, request: NodeMessage, delivery: Delivery, answer: Answer) -> None:
        """Then acknowledge the delivery, which is no longer ours afterwards."""
        message = Message(
            body=sapparchi.encode(
                NodeMessage(action_to=request.action_to, request_id=request.request_id, message_data=answer.data)
            ),
            content_type=_JSON,
            headers=self._headers(answer),
            persistent=delivery.message.persistent,
            message_id=message_id_of(request),
        )
        owed = _Owed(self._packed(message, delivery), request, delivery)
        is_part = isinstance(delivery, PartDelivery)
        origin = delivery.whole.delivery if isinstance(delivery, PartDelivery) else delivery
        if isinstance(origin, UplinkDelivery):
            self._send_up(owed, origin.uplink, together=is_part)
        elif is_part:
            self._send_soon(owed)
        else:
            self._send_alone(owed)

    def _packed(self, message: Message, delivery: Delivery) -> Message:
        rule = self._compression
        if rule is None or len(message.body) < rule.threshold_bytes:
            return message
        is_ours = delivery.message.headers.get(sapparchi.OWNER) == sapparchi.MANAGER
        return packing.packed(message, rule) if is_ours else message

    def _send_up(self, owed: _Owed, uplink: Uplink, *, together: bool) -> None:
        """By the way it came. What no manager takes now is tried again: nobody else has it."""
        again = partial(self._send_up, owed, uplink, together=together)

        def on_outcome(outcome: PublishOutcome) -> None:
            if outcome is None or type(outcome) is WrongUse:
                if outcome is not None:
                    log.warning("answer_refused", request_id=owed.request.request_id, reason=str(outcome))
                self._settler.done(owed.delivery)
            else:
                log.debug("answer_waits", request_id=owed.request.request_id, reason=str(outcome))
                self._loop.call_later(REPEAT_AFTER_S, again)

        uplink.answer(owed.message, on_outcome, together=together)

    def _send_soon(self, owed: _Owed) -> None:
        if not self._owed:
            self._loop.call_soon(self._send_together)
        self._owed.append(owed)

    def _send_together(self) -> None:
        owed, self._owed = self._owed, []
        at = 0
        for message, count in packed([each.message for each in owed]):
            together, at = owed[at : at + count], at + count
            if count == 1:
                self._send_alone(together[0])
            else:  # not over the published exchange, where others may listen who know nothing of bundles
                bundle = Publication(message=message, key=topology.STEP_RESULTS)
                self._broker.post(bundle, partial(self._on_outcome, together))

    def _on_outcome(self, owed: list[_Owed], outcome: PublishOutcome) -> None:
        if outcome is None:
            for each in owed:
                self._settler.done(each.delivery)
        else:
            for each in owed:  # from here on every answer is tried for by itself
                self._send_alone(each)

    def _send_alone(self, owed: _Owed) -> None:
        self._settler.send_then_ack(
            Publication(message=owed.message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS),
            owed.delivery,
            if_unroutable=partial(self._nobody_listens, owed),
        )

    def _headers(self, answer: Answer) -> dict[str, HeaderValue]:
        headers: dict[str, HeaderValue] = {
            sapparchi.STATUS: answer.status,
            result.NODE: self._node_id,
            sapparchi.ENDED: int(time.time() * 1000),
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

    def _nobody_listens(self, owed: _Owed) -> None:
        """No manager ever declared where results go: whoever sent this does not want to know."""
        request = owed.request
        log.warning("result_without_manager", request_id=request.request_id, action=request.action_to)
        self._settler.done(owed.delivery)


def message_id_of(request: NodeMessage) -> str:
    usable = len(request.request_id.encode(errors="replace")) <= MAX_ID_BYTES
    return request.request_id if usable else made_up_id(topology.NODE_UNICAST, request.request_id.encode())


def _sendable(text: str) -> str:
    """An exception's text may hold what no encoding has a place for."""
    return text.encode(errors="replace").decode()
