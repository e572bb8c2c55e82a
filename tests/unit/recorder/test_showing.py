"""What the desk tells about a task, from the store's row."""

from __future__ import annotations

from typing import Any

import pytest

from canoa.recorder import showing
from canoa.store.port import State, TaskRow
from canoa.vocabulary import ActionName, TaskId

NOW_MS = 1_750_000_000_000


def row(**said_s: float | None) -> TaskRow:
    times: dict[str, Any] = {f"{name}_ms": at and NOW_MS + round(1000 * at) for name, at in said_s.items()}
    return TaskRow(
        id=TaskId("t"), action=ActionName("shop.resize"), state=State.WAITING, **{"submitted_ms": NOW_MS, **times}
    )


@pytest.mark.parametrize(
    ("said_s", "took_s"),
    [
        ({"started": 60.0, "ended": 60.5}, 60.5),  # it waited for a worker
        ({"ended": 3.0}, 3.0),  # nobody knows when it began
        ({"due": 60.0, "started": 61.0, "ended": 61.5}, 1.5),  # it was not to start before
        ({"due": 60.0, "ended": 1.0}, 0.0),  # called off before that
        ({"started": -9.0, "ended": -8.0}, 0.0),  # a clock went back
        ({"started": 1.0}, None),
        ({}, None),
    ],
)
def test_a_task_took_the_time_from_when_it_might_have_begun_until_its_end(
    said_s: dict[str, float], took_s: float | None
) -> None:
    assert showing.task(row(**said_s)).took_s == took_s
