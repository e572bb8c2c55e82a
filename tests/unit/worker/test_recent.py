"""The last answers are kept for whoever asks again, by request and by attempt, and never without bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.worker.test_absorbing import asked

from canoa.broker.port import Message
from canoa.worker import recent
from canoa.worker.recent import Recent

if TYPE_CHECKING:
    import pytest


def answer(text: str = "") -> Message:
    return Message(body=text.encode())


def test_the_same_request_and_the_same_attempt_find_the_answer() -> None:
    told = Recent()

    told.put(asked("task.0.1.1"), answer("42"), is_ok=True)

    assert told.find(asked("task.0.1.1")) == answer("42")
    assert told.find(asked("task.0.1.2")) == answer("42")
    assert told.find(asked("task.0.2.1")) is None


def test_a_failure_is_said_again_to_the_same_request_alone() -> None:
    told = Recent()

    told.put(asked("task.0.1.1"), answer("no"), is_ok=False)

    assert told.find(asked("task.0.1.1")) == answer("no")
    assert told.find(asked("task.0.1.2")) is None


def test_requests_of_others_are_known_by_their_id_alone() -> None:
    told = Recent()
    foreign = asked("x.0.1.1")
    foreign.attempt = ""

    told.put(foreign, answer("42"), is_ok=True)
    other = asked("y.0.1.1")
    other.attempt = ""

    assert told.find(foreign) == answer("42")
    assert told.find(other) is None


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_ANSWERS", 2)
    told = Recent()

    for number in range(3):
        told.put(asked(f"task.{number}.1.1"), answer(str(number)), is_ok=True)

    found = [told.find(asked(f"task.{number}.1.2")) for number in range(3)]
    assert found == [None, answer("1"), answer("2")]


def test_what_is_too_large_is_not_kept_and_makes_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_BYTES", 5)
    told = Recent()

    told.put(asked("task.0.1.1"), answer("123456"), is_ok=True)
    told.put(asked("task.1.1.1"), answer("12345"), is_ok=True)
    told.put(asked("task.1.1.1"), answer("54321"), is_ok=True)

    assert told.find(asked("task.0.1.1")) is None
    assert told.find(asked("task.1.1.1")) == answer("54321")
