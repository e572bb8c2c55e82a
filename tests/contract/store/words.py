"""What contract tests say things with: tasks that are accepted, end, die and are sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.execution.outcome import Outcome
from canoa.store.port import Accept, Accepted, Bury, End, Ended, Letter, NewTask, Progress, Redrive
from canoa.vocabulary import ActionName, NodeId, TaskId

if TYPE_CHECKING:
    from canoa.store.port import Change, Store, TaskRow

NOW_MS = 1_800_000_000_000
RESIZE = ActionName("shop.resize")
MAIL = ActionName("shop.mail")


def message(body: bytes = b"{}", **properties: Any) -> Message:
    return Message(**{"body": body, "content_type": "application/json", "message_id": "m", **properties})


def accept(
    task_id: str,
    *,
    action: ActionName = RESIZE,
    at_ms: int = NOW_MS,
    reply_to: str | None = None,
    outbox: bool = False,
    **properties: Any,
) -> Accept:
    sent = message(b'{"width": 100}', **{"message_id": task_id, **properties})
    task = NewTask(id=TaskId(task_id), action=action, message=sent, submitted_ms=at_ms, reply_to=reply_to)
    queue = topology.action_queue_name(action)
    return Accept(task=task, outbox=Publication(message=sent, key=queue) if outbox else None)


def end(task_id: str, outcome: Outcome = Outcome.OK, *, body: bytes = b"1", **fields: Any) -> End:
    return End(
        **{
            "task_id": TaskId(task_id),
            "action": RESIZE,
            "outcome": outcome,
            "result": message(body, type=outcome.value),
            "ended_ms": NOW_MS + 1000,
            **fields,
        }
    )


def progress(task_id: str, fraction: float | None, text: str | None = None, **fields: Any) -> Progress:
    return Progress(**{"task_id": TaskId(task_id), "at_ms": NOW_MS + 10, "fraction": fraction, "text": text, **fields})


def bury(task_id: str, *, dead_ms: int = NOW_MS, action: ActionName = RESIZE, **properties: Any) -> Bury:
    """The dead letter of a task that the store does not keep."""
    letter = Letter(
        task_id=TaskId(task_id),
        action=action,
        reason=Outcome.FAILED,
        error="ValueError: no",
        traceback="Traceback …",
        attempts=3,
        node_id=NodeId("node-1"),
        origin=topology.action_queue_name(action),
        dead_ms=dead_ms,
    )
    return Bury(letter=letter, message=message(b'{"width": 7}', **{"message_id": task_id, **properties}))


def redrive(task_id: str, *, now_ms: int = NOW_MS + 5000) -> Redrive:
    return Redrive(task_id=TaskId(task_id), now_ms=now_ms)


async def applied(store: Store, *changes: Change) -> list[Any]:
    return list(await store.apply(changes))


async def accepted(store: Store, *task_ids: str, **fields: Any) -> None:
    answers = await applied(store, *(accept(task_id, **fields) for task_id in task_ids))
    assert answers == [Accepted(is_new=True)] * len(task_ids)


async def ended(store: Store, task_id: str, outcome: Outcome = Outcome.OK, **fields: Any) -> Ended:
    (answer,) = await applied(store, end(task_id, outcome, **fields))
    return cast("Ended", answer)


async def row(store: Store, task_id: str) -> TaskRow:
    found = await store.task(TaskId(task_id))
    assert found is not None
    return found


async def result_body(store: Store, task_id: str) -> bytes | None:
    found = await store.result(TaskId(task_id))
    return None if found is None else found.body
