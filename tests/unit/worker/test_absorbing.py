"""Which requests are one attempt: what a manager sent once more, but not what is to be done again."""

from __future__ import annotations

from canoa.broker.direct import DirectDelivery
from canoa.broker.port import HeaderValue, Message
from canoa.wire import sapparchi, task
from canoa.wire.sapparchi import NodeMessage
from canoa.worker.absorbing import Asked


def asked(request_id: str, **headers: HeaderValue) -> Asked:
    message = Message(body=b"", headers={sapparchi.OWNER: sapparchi.MANAGER, **headers})
    return Asked(NodeMessage(action_to="x", request_id=request_id), DirectDelivery(message, lambda _: None))


def test_an_attempt_that_is_sent_once_more_is_the_same() -> None:
    assert asked("task.0.1.1").attempt == asked("task.0.1.2").attempt


def test_an_attempt_after_its_work_was_undone_is_another_one() -> None:
    again = asked("task.0.1.2", **{task.IDEMPOTENCY_KEY: "task.0.run-2"})

    assert again.attempt != asked("task.0.1.1").attempt
