"""A canary and its answer: messages as published, small, short-lived, and nobody's attempt. Pure functions."""

from __future__ import annotations

from typing import Final

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.execution.outcome import Outcome
from canoa.execution.proof import EVERY_S
from canoa.wire import result, sapparchi
from canoa.wire.sapparchi import NodeMessage

_JSON: Final = "application/json"


def canary(node_id: str, request_id: str, *, reply_to: str | None) -> Message:
    """It waits for a node that is away, which answers it on its return, and is gone when the next one comes."""
    body = NodeMessage(action_to=sapparchi.CANARY, request_id=request_id)
    return Message(
        body=sapparchi.encode(body),
        content_type=_JSON,
        headers={sapparchi.NODE_ID: node_id},
        persistent=False,
        message_id=request_id,
        reply_to=reply_to,
        expiration_s=EVERY_S,
    )


def answer(request: NodeMessage, node_id: str, *, reply_to: str | None) -> Publication:
    """To whoever asked, or by the way of all answers: any manager tells the one that asked."""
    message = Message(
        body=sapparchi.encode(NodeMessage(action_to=request.action_to, request_id=request.request_id)),
        content_type=_JSON,
        headers={sapparchi.STATUS: Outcome.OK.value, result.NODE: node_id},
        persistent=False,
        expiration_s=EVERY_S,
    )
    if reply_to is not None and reply_to.startswith(topology.CANARY_PREFIX):
        return Publication(message=message, key=reply_to, mandatory=False)
    return Publication(message=message, exchange=topology.AMQ_TOPIC, key=topology.STEP_RESULTS, mandatory=False)
