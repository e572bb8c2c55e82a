"""Task requests, as moves: from the published queue, and from this process's own doors (the HTTP API, a session).

What cannot run is refused at once, and says why; nothing that was accepted is acknowledged before it is on disk.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from canoa.clock import now_ms
from canoa.errors import (
    CanoaError,
    PayloadTooLarge,
    PlanRefused,
    UnknownPlan,
    WrongUse,
)
from canoa.execution.outcome import Outcome
from canoa.execution.plan import actions_of
from canoa.execution.step_moves import Verdict
from canoa.logs import get_logger
from canoa.manager import requests
from canoa.manager.opening import Opener
from canoa.manager.reading import as_said
from canoa.manager.unknown import COMPARED, SHOWN, unknown_plan
from canoa.repeating import REPEAT_AFTER_S, is_lasting
from canoa.store.port import Accepted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Delivery, Message
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import Route
    from canoa.manager.metrics import ManagerStats
    from canoa.manager.moving import Moving
    from canoa.manager.refusing import Refusals
    from canoa.manager.requests import Request
    from canoa.manager.sending import Sender
    from canoa.store.routed_port import Begin, Moved, RoutedStore

log = get_logger(__name__)

UNKNOWN_ACTION: Final = "unknown_action"


class Intake:
    """`limit_bytes`: of a task's input."""

    def __init__(
        self,
        store: RoutedStore,
        route: Route,
        moving: Moving,
        sender: Sender,
        *,
        refusals: Refusals,
        stats: ManagerStats,
        limit_bytes: int,
    ) -> None:
        self._store = store
        self._route = route
        self._moving = moving
        self._sender = sender
        self._refusals = refusals
        self._stats = stats
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._opener = Opener(self._take, self._refuse)
        self._asking: dict[str, asyncio.Task[Plan]] = {}

    # --- From this process ------------------------------------------------------------------------------

    async def accept(self, messages: Sequence[Message]) -> list[Accepted]:
        """Stored when it returns, all of them or none. Raises what is wrong with the first that cannot run."""
        begins = [await self._begin(message) for message in messages]
        for name in {name for begin in begins for name in actions_of(begin.plan)}:
            if not self._route.is_known(name):
                raise self._route.unknown(name)
        moved = await self._moving.apply_all(begins)
        return [_accepted(each) for each in moved]

    async def _begin(self, message: Message) -> Begin:
        request = requests.read(message, now_ms(), limit_bytes=self._limit_bytes)
        plan = request.plan or await self.registered(request.plan_name)
        return requests.begin(request, plan, now_ms())

    # --- From the queue -----------------------------------------------------------------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        self._opener.on_delivery(delivery)

    def stop(self) -> None:
        """What is in hand is still written; bundles that are not open yet are left to other managers."""
        self._opener.stop()

    def _take(self, delivery: Delivery) -> None:
        try:
            request = requests.read(as_said(delivery.message), now_ms(), limit_bytes=self._limit_bytes)
        except CanoaError as exc:
            self._refuse(delivery, exc)
            return
        if request.plan is not None:
            self._write(delivery, requests.begin(request, request.plan, now_ms()))
        else:
            self._ask(delivery, request)

    def _write(self, delivery: Delivery, begin: Begin) -> None:
        if not delivery.is_settled:  # its link is gone: another manager has it
            self._moving.post(begin, partial(self._on_answer, delivery, begin))

    def _on_answer(self, delivery: Delivery, begin: Begin, answer: Moved | CanoaError) -> None:
        if not isinstance(answer, CanoaError):
            if answer.outcome is Outcome.REFUSED:
                self._note_unknown(begin)
            self._sender.when_roomy(delivery.settle)
        elif is_lasting(answer):
            self._refuse(delivery, answer)
        else:
            self._stats.not_written(answer)
            self._loop.call_later(REPEAT_AFTER_S, self._write, delivery, begin)

    def _refuse(self, delivery: Delivery, error: CanoaError) -> None:
        request_id = requests.readable_id(as_said(delivery.message), self._limit_bytes)
        reason = _reason(error)
        self._stats.refused(reason)
        log.warning("request_refused", request_id=request_id, why=reason, reason=str(error))
        self._refusals.refuse(delivery, request_id, str(error))

    def _note_unknown(self, begin: Begin) -> None:
        """The store refused it, for what it asks for; whoever waits was told with the task's end."""
        names = [name for name in actions_of(begin.plan) if not self._route.is_known(name)]
        reason = f"no node has ever offered {', '.join(names[:SHOWN])}"
        self._stats.refused(UNKNOWN_ACTION)
        log.warning("request_refused", request_id=begin.task.id, why=UNKNOWN_ACTION, reason=reason)

    # --- Registered plans -----------------------------------------------------------------------------------

    def _ask(self, delivery: Delivery, request: Request) -> None:
        """Whoever asks for a plan while the store is asked for it shares the answer."""
        asking = self._asking.get(request.plan_name)
        if asking is None:
            asking = self._loop.create_task(self.registered(request.plan_name), name="manager.plan")
            self._asking[request.plan_name] = asking
            asking.add_done_callback(lambda _: self._asking.pop(request.plan_name, None))
        asking.add_done_callback(partial(self._on_plan, delivery, request))

    def _on_plan(self, delivery: Delivery, request: Request, asking: asyncio.Task[Plan]) -> None:
        if asking.cancelled() or delivery.is_settled:
            return
        error = asking.exception()
        if isinstance(error, UnknownPlan):
            self._refuse(delivery, error)
        elif error is not None:
            log.warning("plan_not_read", plan=request.plan_name, reason=str(error))
            self._loop.call_later(REPEAT_AFTER_S, self._ask, delivery, request)
        else:
            self._write(delivery, requests.begin(request, asking.result(), now_ms()))

    async def registered(self, name: str) -> Plan:
        """Raises `UnknownPlan`, with the nearest names."""
        plan = await self._store.plan(name)
        if plan is None:
            raise unknown_plan(name, await self._store.plan_names(limit=COMPARED))
        return plan


def _accepted(moved: Moved) -> Accepted:
    return Accepted(is_new=moved.verdict is Verdict.TAKEN, is_ended=moved.outcome is not None)


def _reason(error: CanoaError) -> str:
    """The label under which it is counted."""
    reasons: dict[type[CanoaError], str] = {
        PayloadTooLarge: "too_large",
        PlanRefused: "plan",
        UnknownPlan: "unknown_plan",
    }
    return reasons.get(type(error), "malformed" if isinstance(error, WrongUse) else "not_kept")
