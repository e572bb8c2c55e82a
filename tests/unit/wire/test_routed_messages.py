"""What managers send to nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.vocabulary import ActionName, NodeId, TaskId
from canoa.wire import routed, task, trace

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
