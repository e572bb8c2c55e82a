"""What managers send to nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.execution.plan_checks import MAX_TIMEOUT_S
from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire import bundle, routed, task, trace
from canoa.wire.ids import MAX_ID_CHARS
from canoa.wire.sapparchi import MAX_NODE_ID_CHARS, request_id

if TYPE_CHECKING:
    from canoa.broker.port import HeaderValue


def test_steps_share_their_tasks_trace_and_deadline_but_no_idempotency_key() -> None:
    passed_on: dict[str, HeaderValue] = {
        trace.TRACEPARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        task.DEADLINE: 7,
    }

    publication = routed.to_node(
        NodeId("gw-7"),
        "order-7.0.1.1",
        task_id=TaskId("order-7"),
        step="double",
        action=ActionName("plant.double"),
        step_input=b"1",
        attempt=1,
        timeout_s=None,
        expires_s=None,
        request={**passed_on, task.IDEMPOTENCY_KEY: "order"},
    )

    headers = publication.message.headers
    assert passed_on.items() <= headers.items()
    assert task.IDEMPOTENCY_KEY not in headers


def test_an_attempt_is_within_what_a_bundle_can_hold_however_long_its_names_are() -> None:
    """Nobody reads it before it is sent: see `manager/sending.py`."""
    task_id = TaskId("x" * MAX_ID_CHARS)

    message = routed.to_node(
        NodeId("é" * MAX_NODE_ID_CHARS),
        request_id(task_id, 999_999_999, 999_999_999, 999_999_999),
        task_id=task_id,
        step="s" * 1_000,
        action=ActionName("a" * 1_000),
        step_input=b'"\xff"',
        attempt=999_999_999,
        timeout_s=MAX_TIMEOUT_S,
        expires_s=bundle.MAX_TTL_S,
        request={trace.TRACEPARENT: "p" * 55, trace.TRACESTATE: "s" * 512, task.DEADLINE: task.MAX_MS},
    ).message

    [(together, count)] = bundle.packed([message, message], are_within_bounds=True)
    assert count == 2
    assert [part.headers for part in bundle.parts(together)] == [message.headers] * 2
