"""A dead letter's way back: the task as it was first sent, opened anew as its next run. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker import topology
from canoa.broker.port import HeaderValue, Message, Publication
from canoa.wire import result, task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.vocabulary import TaskId

_OF_ITS_DEATH: Final = frozenset(
    {
        task.ATTEMPT,
        task.CRASHES,
        task.DEADLINE,
        result.REASON,
        result.ERROR,
        result.NODE,
        result.ORIGIN,
        result.DEAD_SINCE,
        result.TRACEBACK,
    }
)
"""What its last run left in the headers: how it went, and by when it had to start."""


def redriven(letter: Message, *, task_id: TaskId, run: int, origin: str) -> Publication:
    """Back to the queue it came from, to answer to the store. Everything counts from the beginning again."""
    message = msgspec.structs.replace(
        letter,
        headers={**_first_headers(letter.headers), task.RUN: run},
        persistent=True,
        expiration_s=None,
        reply_to=topology.RESULTS,
        message_id=task_id,
    )
    return Publication(message=message, key=origin)


def run_of(message: Message) -> int:
    """Which run of its task the message is; 0, the first, where it says nothing usable."""
    run = message.headers.get(task.RUN)
    return run if type(run) is int and 0 <= run < task.MAX_COUNT else 0


def _first_headers(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    return {name: value for name, value in headers.items() if name not in _OF_ITS_DEATH and not name.startswith("x-")}
