"""What managers publish: a step to its node, a task's end to whoever listens, and to whoever waits. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.urn import action_urn
from canoa.wire import sapparchi, trace
from canoa.wire import task as task_wire
from canoa.wire.sapparchi import NodeMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.execution.outcome import Outcome
    from canoa.vocabulary import ActionName, NodeId, TaskId

_JSON: Final = "application/json"
_PASSED_ON: Final = (trace.TRACEPARENT, trace.TRACESTATE, task_wire.DEADLINE)
"""Not the idempotency key: it made the task's id, and a node makes one for every step of that."""


def to_node(
    node_id: NodeId,
    request_id: str,
    *,
    task_id: TaskId,
    step: str,
    action: ActionName,
    step_input: bytes,
    attempt: int,
    timeout_s: float | None,
    expires_s: float | None,
    request: Mapping[str, HeaderValue],
    idempotency_key: str | None = None,
) -> Publication:
    """`request`: the headers of the task's request, of which some go on. `timeout_s`: where the plan says one; the node
    knows its own. `expires_s`: after which nobody waits for the answer. `idempotency_key`: where it is not the one that
    the node makes of task and step."""
    headers: dict[str, HeaderValue] = {
        sapparchi.NODE_ID: node_id,
        sapparchi.OWNER: sapparchi.MANAGER,
        sapparchi.TASK: task_id,
        sapparchi.STEP: step,
    }
    if request:
        headers |= {name: request[name] for name in _PASSED_ON if name in request}
    if idempotency_key is not None:
        headers[task_wire.IDEMPOTENCY_KEY] = idempotency_key
    if attempt > 1:
        headers[task_wire.ATTEMPT] = attempt
    if timeout_s is not None:
        headers[task_wire.TIMEOUT] = max(1, round(timeout_s * 1000))
    body = NodeMessage(action_to=action_urn(action), request_id=request_id, message_data=_text(step_input))
    message = Message(
        body=sapparchi.encode(body),
        content_type=_JSON,
        headers=headers,
        persistent=False,  # the store has it: see `manager/marking.py`
        message_id=request_id,
        expiration_s=expires_s,
    )
    return Publication(message=message, key="", exchange=topology.NODE_UNICAST)


def single_result(task_id: TaskId, action: ActionName, *, output: bytes | None, error: str | None) -> bytes:
    """How a single action ended, as published: the result message under the request's id."""
    said = output if output is not None else msgspec.json.encode({"error": error or ""})
    return sapparchi.encode(NodeMessage(action_to=action_urn(action), request_id=task_id, message_data=_text(said)))


def final_result(task_id: TaskId, body: bytes, outcome: Outcome) -> Publication:
    """A task's end, for whoever listens; `topology.manager` relays it to the exchange of its own. On the broker's disk:
    nobody can ask for it again by other means than the store."""
    message = Message(
        body=body,
        content_type=_JSON,
        headers={sapparchi.STATUS: outcome.value},
        expiration_s=topology.FINAL_TTL_S,
        message_id=task_id,
        correlation_id=task_id,
    )
    return Publication(message=message, key=topology.FINAL_RESULTS, exchange=topology.AMQ_TOPIC, mandatory=False)


def reply(result: Message, queue: str) -> Publication:
    """A caller that is gone can ask again by the task's id: so it is not put on disk."""
    return Publication(message=msgspec.structs.replace(result, persistent=False), key=queue, mandatory=False)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")
