"""How a node answers a manager: by a message as published, with what Canoa adds in its headers.

The answer is confirmed before the delivery it answers is acknowledged.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.logs import get_logger
from canoa.wire import result, sapparchi
from canoa.wire.codec import ContentType
from canoa.wire.ids import made_up_id

if TYPE_CHECKING:
    from canoa.broker.port import Delivery
    from canoa.wire.result import Failure
    from canoa.wire.sapparchi import NodeMessage
    from canoa.worker.settling import Settler

log = get_logger(__name__)

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


class Answerer:
    def __init__(self, settler: Settler, node_id: str) -> None:
        self._settler = settler
        self._node_id = node_id

    def answer(self, request: NodeMessage, delivery: Delivery, answer: Answer) -> None:
        """Then acknowledge the delivery, which is no longer ours afterwards."""
        body = sapparchi.encode(msgspec.structs.replace(request, message_data=answer.data))
        message = Message(
            body=body,
            content_type=ContentType.JSON.value,
            headers=self._headers(answer),
            persistent=delivery.message.persistent,
            message_id=message_id_of(request),
        )
        self._settler.send_then_ack(
            Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS),
            delivery,
            if_unroutable=partial(self._nobody_listens, request, delivery),
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

    def _nobody_listens(self, request: NodeMessage, delivery: Delivery) -> None:
        """No manager ever declared where results go: whoever sent this does not want to know."""
        log.warning("result_without_manager", request_id=request.request_id, action=request.action_to)
        self._settler.done(delivery)


def message_id_of(request: NodeMessage) -> str:
    usable = len(request.request_id.encode(errors="replace")) <= MAX_ID_BYTES
    return request.request_id if usable else made_up_id(topology.NODE_UNICAST, request.request_id.encode())


def _sendable(text: str) -> str:
    """An exception's text may hold what no encoding has a place for."""
    return text.encode(errors="replace").decode()
