"""A worker remembers the latest cancellations, and never more than it has room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from canoa.vocabulary import TaskId
from canoa.worker.cancelled import CancelledTasks


def test_a_cancelled_task_is_known_and_others_are_not() -> None:
    cancelled = CancelledTasks()

    cancelled.add(TaskId("a"))

    assert "a" in cancelled
    assert "b" not in cancelled
    assert None not in cancelled


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.integers(1, 6))
def test_exactly_the_latest_ones_are_remembered(names: list[str], capacity: int) -> None:
    cancelled = CancelledTasks(capacity)

    for name in names:
        cancelled.add(TaskId(name))

    latest_first = list(dict.fromkeys(reversed(names)))
    assert {name for name in "abcdefgh" if name in cancelled} == set(latest_first[:capacity])
