"""The door of a node's own queue: a message as published becomes a task of one of its actions, or is refused here."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.bundled import opened
from canoa.broker.port import HeaderValue, Message
from canoa.errors import PayloadTooLarge, Undecodable, WrongUse
from canoa.execution.outcome import Outcome
from canoa.logs import get_logger
from canoa.urn import ACTION_PREFIX, action_name
from canoa.wire import packing, result, sapparchi, task, trace
from canoa.wire.bundle import is_bundle
from canoa.wire.codec import ContentType
from canoa.wire.sapparchi import NodeMessage
from canoa.worker.answering import failure
from canoa.worker.routed import RoutedDelivery, RoutedOffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from canoa.broker.port import Delivery
    from canoa.worker.answering import Answerer
    from canoa.worker.settling import Settler

log = get_logger(__name__)

_JSON: Final = ContentType.JSON.value  # a member's `value` is slow to look up
ENVELOPE_BYTES: Final = 64 * 1024
"""Room for what stands around the arguments; those, quoted inside JSON, take up to twice their size and rarely more."""


class _Half(msgspec.Struct):
    """What is left of a message that cannot be read whole: enough to say so to whoever sent it."""

    request_id: str = msgspec.field(name="requestID", default="")


class NotOffered(WrongUse):
    """The action is another node's: whoever sent it can send it there."""


class Unicast:
    """`on_canary` gets what is no action's: it is settled there."""

    def __init__(
        self,
        offers: Mapping[str, RoutedOffer],
        answerer: Answerer,
        settler: Settler,
        *,
        on_canary: Callable[[NodeMessage, Delivery], None],
        max_payload_bytes: int,
    ) -> None:
        self.refused = 0  # messages that no action was found for
        self._offers = offers
        self._answerer = answerer
        self._settler = settler
        self._on_canary = on_canary
        self._loop = asyncio.get_running_loop()
        self._max_bytes = 2 * max_payload_bytes + ENVELOPE_BYTES

    def parts(self, delivery: Delivery) -> Sequence[Delivery]:
        """What came with it: itself, or all that a bundle holds. None of a bundle that cannot be read."""
        if not is_bundle(delivery.message):
            return (delivery,)
        try:
            return opened(delivery, now_s=self._loop.time())
        except (Undecodable, PayloadTooLarge) as exc:
            self._refuse(delivery, b"", exc)
            return ()

    def open(self, delivery: Delivery) -> tuple[RoutedOffer, RoutedDelivery] | None:
        """The action and its task. None: there is none, and whoever can be told was told, or it was a canary."""
        body = b""
        try:
            body = packing.unpack(delivery.message, self._max_bytes)
            request = sapparchi.decode(body, NodeMessage)
            if request.action_to == sapparchi.CANARY:
                self._on_canary(request, delivery)
                return None
            offer = self._offer_of(request)
        except (Undecodable, PayloadTooLarge, WrongUse) as exc:
            self._refuse(delivery, body, exc)
            return None
        headers = _headers(delivery.message.headers, request)
        return offer, RoutedDelivery(delivery, request, _as_of_the_pool(delivery.message, request, offer, headers))

    def _offer_of(self, request: NodeMessage) -> RoutedOffer:
        if not request.request_id:
            raise Undecodable("the message has no requestID; send one, unique per attempt")
        offer = self._offers.get(request.action_to.removeprefix(ACTION_PREFIX))
        if offer is None:
            name = action_name(request.action_to)
            raise NotOffered(f"this node does not offer {name}; it offers {', '.join(self._offers)}"[:500])
        return offer

    def _refuse(self, delivery: Delivery, body: bytes, why: Exception) -> None:
        self.refused += 1
        self._settler.took()
        request = _half_read(body)
        log.warning("message_refused", request_id=request.request_id, action=request.action_to, reason=str(why))
        if not request.request_id:
            self._settler.done(delivery)
            return
        what = result.failure(str(why), error_type=type(why).__name__)
        status = sapparchi.RETURNED if isinstance(why, NotOffered) else Outcome.REFUSED
        self._answerer.answer(request, delivery, failure(status, what))


def _half_read(body: bytes) -> NodeMessage:
    with suppress(Undecodable):
        return sapparchi.decode(body, NodeMessage)
    try:
        half = msgspec.json.decode(body, type=_Half)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        half = _Half()
    return NodeMessage(action_to="", request_id=half.request_id)


def _as_of_the_pool(
    message: Message, request: NodeMessage, offer: RoutedOffer, headers: Mapping[str, HeaderValue]
) -> Message:
    """Its body the arguments, its id the request's. Nobody waits for an answer elsewhere."""
    return Message(
        body=offer.action.signature.routed_body(request.message_data.encode()),
        content_type=_JSON,
        headers=headers,
        persistent=message.persistent,
        priority=message.priority,
        message_id=request.request_id,
    )


def _headers(given: Mapping[str, HeaderValue], request: NodeMessage) -> Mapping[str, HeaderValue]:
    """With the task's trace and a key that stays over attempts, where the manager gave none. Retries are its own."""
    headers = dict(given)
    headers.pop(task.RETRIES, None)
    parts = sapparchi.parse_request_id(request.request_id)
    if parts is None:
        return headers
    task_id, step, _, _ = parts
    headers.setdefault(sapparchi.TASK, task_id)
    headers.setdefault(task.IDEMPOTENCY_KEY, f"{task_id}.{step}")
    is_of_a_trace = len(task_id) == trace.ID_CHARS and trace.TRACEPARENT not in headers
    if is_of_a_trace and (traceparent := _traceparent(task_id)) is not None:
        headers[trace.TRACEPARENT] = traceparent
    return headers


@lru_cache(4096)
def _traceparent(task_id: str) -> str | None:
    """All steps of a task are in its trace. None for an id that can be none's."""
    traced = trace.parse(f"00-{task_id}-{task_id[16:]}-01")
    return None if traced is None else traced.format()
