"""One task on its way to the broker: sent again under the same id while a broken link leaves its fate unknown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from canoa import telemetry
from canoa.broker import topology
from canoa.client.outgoing import aimed_anew
from canoa.client.routed import nobody_manages
from canoa.errors import BrokerUnreachable, CanoaError, DeliveryUnknown, NobodyKeeps, UnknownAction, Unroutable

if TYPE_CHECKING:
    import asyncio

    from canoa.broker.port import Broker, Publication, PublishOutcome
    from canoa.client.bundling import Requests
    from canoa.client.handle import Handle
    from canoa.client.session import Session
    from canoa.vocabulary import ActionName


class Sending:
    """`way`: to the broker. `accepted` hears None once that has it, or why not; without one, a refusal ends the handle
    alone."""

    __slots__ = ("_accepted", "_give_up_s", "_handle", "_is_in_doubt", "_publication", "_session", "_way")

    def __init__(
        self,
        session: Session,
        way: Broker | Requests,
        publication: Publication,
        handle: Handle[Any],
        accepted: asyncio.Future[CanoaError | None] | None,
    ) -> None:
        self._session = session
        self._way = way
        self._publication = publication
        self._handle = handle
        self._accepted = accepted
        self._give_up_s = session.give_up_s()
        self._is_in_doubt = False

    def post(self) -> None:
        self._way.post(self._publication, self._on_outcome, later=self._accepted is None)

    def _on_outcome(self, outcome: PublishOutcome) -> None:
        if isinstance(outcome, DeliveryUnknown) and self._may_repeat():
            self._is_in_doubt = True
            self._publication = aimed_anew(self._publication, time.time())
            self.post()
        elif outcome is None or self._has_answer():
            self._session.replies.taken(self._handle)
            self._tell(None)
        else:
            error = self._named(outcome)
            self._session.replies.drop(self._handle, error)
            self._tell(error)

    def _may_repeat(self) -> bool:
        session = self._session
        return session.is_open and session.loop.time() < self._give_up_s and not self._has_answer()

    def _has_answer(self) -> bool:
        """It answered or was cancelled: either way no more needs to be sent."""
        return self._publication.message.reply_to is not None and self._handle.is_answered

    def _named(self, outcome: CanoaError) -> CanoaError:
        if self._is_in_doubt and isinstance(outcome, BrokerUnreachable):
            # "Nothing was sent" holds for the last try only.
            return DeliveryUnknown(f"task {self._handle.id} was sent once, without an answer; then: {outcome}")
        return named(outcome, self._publication, self._handle.action, is_memory=self._session.is_memory)

    def _tell(self, error: CanoaError | None) -> None:
        telemetry.sent(self._handle, error)
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(error)


def named(outcome: CanoaError, publication: Publication, action: ActionName, *, is_memory: bool) -> CanoaError:
    """What the broker calls unroutable is, to a caller, an action that nobody ever offered, or a task that nobody would
    keep or route."""
    if not isinstance(outcome, Unroutable):
        return outcome
    if publication.key == topology.SUBMIT:
        return NobodyKeeps(f"nobody keeps the result of {action} here; start `canoa recorder`, or use result='reply'")
    if publication.key == topology.TASK_REQUESTS:
        return nobody_manages(action, is_memory=is_memory)
    return UnknownAction(action, is_memory=is_memory)
