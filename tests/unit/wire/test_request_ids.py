"""Request ids: what managers make of a task, a step, an attempt and a send, and what they read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.wire import sapparchi
from canoa.wire.sapparchi import parse_request_id, request_id

NUMBERS = st.integers(0, 999_999_999)


@given(task_id=st.text(min_size=1), step=NUMBERS, attempt=NUMBERS, send=NUMBERS)
def test_what_was_made_is_read_back(task_id: str, step: int, attempt: int, send: int) -> None:
    assert parse_request_id(request_id(task_id, step, attempt, send)) == (task_id, step, attempt, send)


@pytest.mark.parametrize(
    "text", ["", "a", "a.1.1", ".1.1.1", "a.x.1.1", "a.1.-1.1", "a.1. 1.1", "a.1.1.1e3", "a.1..1", "a.1.1.1234567890"]
)
def test_what_no_manager_made_is_nothing(text: str) -> None:
    assert parse_request_id(text) is None


def test_numbers_too_long_to_be_ours_are_nothing_and_are_not_remembered() -> None:
    sapparchi._numbers.cache_clear()

    assert parse_request_id(f"a.1.{'1' * 100_000}.1") is None
    assert sapparchi._numbers.cache_info().currsize == 0
