"""Requests that come again: what runs here is not begun a second time, and what was answered is not run again.

A cut link makes the broker give a request out once more; a manager that missed its node for long sends the same attempt
again, under another request id. Both would run the action twice. Neither is a sign of a crash.
What is in the outbox is known there; this is about what this process has in its hands, or had a moment ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.wire import sapparchi

if TYPE_CHECKING:
    from canoa.broker.port import Delivery, Message
    from canoa.wire.sapparchi import NodeMessage

REMEMBERED: Final = 10_000
"""Request ids, twice at most. An acknowledgement that a cut swallowed comes back within as many requests."""


class Asked:
    """A request and the delivery that brought it. `attempt`: what stays when a manager of ours sends it to a node once
    more, all but the last part of its id; empty for others, whose ids are opaque."""

    __slots__ = ("attempt", "delivery", "id", "request")

    def __init__(self, request: NodeMessage, delivery: Delivery) -> None:
        self.request = request
        self.delivery = delivery
        self.id = request.request_id
        is_ours = delivery.message.headers.get(sapparchi.OWNER) == sapparchi.MANAGER
        self.attempt = self.id.rpartition(".")[0] if is_ours else ""


class InHand:
    """One attempt, from its begin until its answer is safe. `also` came meanwhile and waits for the same answer."""

    __slots__ = ("also", "answer", "attempt", "request_id")

    def __init__(self, request_id: str, attempt: str) -> None:
        self.request_id = request_id
        self.attempt = attempt
        self.also: list[Asked] = []
        self.answer: Message | None = None  # once there is one


class Requests:
    """Those in hand, and the ids of those that were answered lately."""

    def __init__(self) -> None:
        self._in_hand: dict[str, InHand] = {}  # by request id
        self._attempts: dict[str, InHand] = {}
        self._run_as: dict[str, str] = {}  # a request that waits for the answer to another one
        self._answered: set[str] = set()
        self._answered_before: set[str] = set()

    def in_hand(self, asked: Asked) -> InHand:
        """From here on it is, if it was not."""
        known = self._in_hand.get(asked.id)
        if known is None:
            known = self._in_hand[asked.id] = InHand(asked.id, asked.attempt)
            if asked.attempt:
                self._attempts[asked.attempt] = known
        return known

    def find(self, asked: Asked) -> InHand | None:
        """What will answer it."""
        return self._in_hand.get(asked.id) or self._attempts.get(asked.attempt)

    def join(self, known: InHand, asked: Asked) -> None:
        known.also.append(asked)
        if asked.id != known.request_id:
            self._run_as[asked.id] = known.request_id

    def runs_as(self, request_id: str) -> str:
        """The request under which it runs here: mostly its own."""
        return self._run_as.get(request_id, request_id)

    def end(self, request_id: str, *, is_answered: bool) -> list[Asked]:
        """It is no longer in hand. Returns those that still wait for it."""
        known = self._in_hand.pop(request_id, None)
        if is_answered:
            self._remember(request_id)
        if known is None:
            return []
        if self._attempts.get(known.attempt) is known:
            del self._attempts[known.attempt]
        for each in known.also:
            self._run_as.pop(each.id, None)
        return known.also

    def is_answered(self, request_id: str) -> bool:
        return request_id in self._answered or request_id in self._answered_before

    def _remember(self, request_id: str) -> None:
        if len(self._answered) >= REMEMBERED:
            self._answered_before, self._answered = self._answered, set()
        self._answered.add(request_id)
