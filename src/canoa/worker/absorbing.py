"""Requests that come again: what runs here is not begun a second time, and what was answered is not run again.

A cut link makes the broker give a request out once more; a manager that missed its node for long sends the same attempt
again, under another request id. Both would run the action twice. Neither is a sign of a crash.
What is in the outbox is known there; this is about what this process has in its hands, or had a moment ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.wire import sapparchi, task

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
        headers = delivery.message.headers
        is_ours = headers.get(sapparchi.OWNER) == sapparchi.MANAGER
        self.attempt = self.id.rpartition(".")[0] if is_ours else ""
        if self.attempt and task.IDEMPOTENCY_KEY in headers:  # what it did was undone: it is to be done once more
            self.attempt += f"#{headers[task.IDEMPOTENCY_KEY]!r}"


class InHand:
    """One attempt, from its begin until its answer is safe."""

    __slots__ = ("also", "answer", "asked", "is_flying", "is_over", "is_told", "is_work", "may_keep", "row")

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.also: tuple[Asked, ...] = ()  # came meanwhile, and get the same answer
        self.answer: Message | None = None  # once there is one
        self.is_work = False  # something was done for it: what is only given back costs nothing when it is lost
        self.may_keep = False  # in the outbox: it is work, and that was not tried
        self.row: int | None = None  # of the outbox
        self.is_flying = False  # sent, and not heard of
        self.is_told = False
        self.is_over = False  # its deliveries are no longer ours

    @property
    def is_ours(self) -> bool:
        """The broker waits for a word on one of its deliveries at least."""
        return not all(each.delivery.is_settled for each in (self.asked, *self.also))


class Requests:
    """Those in hand, and the ids of those that were answered lately."""

    def __init__(self) -> None:
        self._in_hand: dict[str, InHand] = {}  # by request id
        self._attempts: dict[str, InHand] = {}
        self._run_as: dict[str, str] = {}  # a request that waits for the answer to another one
        self._answered: set[str] = set()
        self._answered_before: set[str] = set()

    def is_known(self, asked: Asked) -> bool:
        request_id = asked.id
        return (
            request_id in self._in_hand
            or asked.attempt in self._attempts
            or request_id in self._answered
            or request_id in self._answered_before
        )

    def is_answered(self, request_id: str) -> bool:
        return request_id in self._answered or request_id in self._answered_before

    def in_hand(self, asked: Asked) -> InHand:
        """From here on it is, if it was not."""
        known = self._in_hand.get(asked.id)
        if known is None:
            known = self._in_hand[asked.id] = InHand(asked)
            if asked.attempt:
                self._attempts[asked.attempt] = known
        return known

    def find(self, asked: Asked) -> InHand | None:
        """What will answer it."""
        return self._in_hand.get(asked.id) or self._attempts.get(asked.attempt)

    def is_begun(self, asked: Asked) -> bool:
        """This very copy: the same request may have come by several ways."""
        known = self._in_hand.get(asked.id)
        return known is not None and known.asked is asked

    def join(self, known: InHand, asked: Asked) -> None:
        known.also += (asked,)
        if asked.id != known.asked.id:
            self._run_as[asked.id] = known.asked.id

    def runs_as(self, request_id: str) -> str:
        """The request under which it runs here: mostly its own."""
        return self._run_as.get(request_id, request_id)

    def end(self, request_id: str, *, is_answered: bool) -> tuple[Asked, ...]:
        """It is no longer in hand. Returns those that still wait for it."""
        if is_answered:
            self._remember(request_id)
        if self._run_as:
            self._run_as.pop(request_id, None)
        known = self._in_hand.pop(request_id, None)
        if known is None:
            return ()
        attempt = known.asked.attempt
        if attempt and self._attempts.get(attempt) is known:
            del self._attempts[attempt]
        for each in known.also:
            self._run_as.pop(each.id, None)
        return known.also

    def _remember(self, request_id: str) -> None:
        if len(self._answered) >= REMEMBERED:
            self._answered_before, self._answered = self._answered, set()
        self._answered.add(request_id)
