"""The last answers of a node with several ways: who asks again, by another way or under another id, gets them again.

An answer that a broker took may go down with it, before any manager has it. What is in the outbox is known there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from canoa.broker.port import Message
    from canoa.worker.absorbing import Asked

MAX_ANSWERS: Final = 1_000
MAX_BYTES: Final = 1024 * 1024
"""Of all of them. What fell out of here is given back to a manager that asks again; without an answer, it lets that run
again."""


class _Told(NamedTuple):
    attempt: str
    answer: Message


class Recent:
    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}  # by request id, the oldest first
        self._attempts: dict[str, str] = {}  # to the request under which it was answered
        self._bytes = 0

    def put(self, asked: Asked, answer: Message, *, is_ok: bool) -> None:
        """A failure is one run's own, and answers no other request."""
        self._forget(asked.id)
        self._told[asked.id] = _Told(asked.attempt if is_ok else "", answer)
        if is_ok and asked.attempt:
            self._attempts[asked.attempt] = asked.id
        self._bytes += len(answer.body)
        while len(self._told) > MAX_ANSWERS or self._bytes > MAX_BYTES:
            self._forget(next(iter(self._told)))

    def find(self, asked: Asked) -> Message | None:
        told = self._told.get(asked.id) or self._told.get(self._attempts.get(asked.attempt, ""))
        return None if told is None else told.answer

    def _forget(self, request_id: str) -> None:
        told = self._told.pop(request_id, None)
        if told is not None:
            self._bytes -= len(told.answer.body)
            if self._attempts.get(told.attempt) == request_id:
                del self._attempts[told.attempt]
