"""Running actions and waiting for them, one or many: kept by a store (`KeptCalls`), or with the caller (`ReplyCalls`).

Blocking; for commands. A program uses `action.call` and `action.map`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from canoa.client.door import ENDED, result_of
from canoa.client.limit import NO_LIMIT, Limit, linked
from canoa.errors import (
    ApiUnreachable,
    ArgumentsRefused,
    BrokerUnreachable,
    DeliveryUnknown,
    ManagersGone,
    NobodyKeeps,
    PayloadTooLarge,
    ResultNotReady,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from canoa.app import Canoa
    from canoa.broker.port import Depth
    from canoa.client.door import Door, Order
    from canoa.client.handle import Handle
    from canoa.recorder.views import ResultView, TaskView

LOOK_EVERY_S: Final = 0.3
"""How often somebody who watches sees how far a task is."""

BACK_WITHIN_S: Final = 30.0
"""How long a wait goes on while nobody answers: `canoa up` or a recorder that was killed is started again."""

ASK_AGAIN_S: Final = 0.5
AWAY: Final = (ApiUnreachable, BrokerUnreachable, DeliveryUnknown, ManagersGone, NobodyKeeps, StoreUnreachable)

Started: TypeAlias = str | ArgumentsRefused | PayloadTooLarge
"""A task's id, or why this one was refused; whatever would meet the others as well is raised."""


class Calls(Protocol):
    is_kept: bool
    """Whether the result can still be had by id when this program is gone."""

    def start(self, orders: Sequence[Order]) -> list[Started]:
        """Once all are accepted or refused."""

    def finish(self, task_id: str, *, wait_s: float | None, watch: Callable[[TaskView], None] | None = None) -> Any:
        """The result, or what ended the task instead; `ResultNotReady` after `wait_s`. `watch` hears how far it is,
        where that is known."""

    def cancel(self, task_id: str) -> None: ...

    def depth(self, action: str) -> Depth | None:
        """How many wait for that action, and for how many workers; None where that is not known."""

    def close(self) -> None: ...


class KeptCalls:
    is_kept = True

    def __init__(self, door: Door, limit: Limit = NO_LIMIT) -> None:
        """`limit`: the door's."""
        self._door = door
        self._limit = limit

    def start(self, orders: Sequence[Order]) -> list[Started]:
        """All at once; one by one where one of them is refused."""
        try:
            return [each.id for each in self._door.submit(orders)]
        except (ArgumentsRefused, PayloadTooLarge) as exc:
            return [exc] if len(orders) == 1 else [each for order in orders for each in self.start([order])]

    def finish(self, task_id: str, *, wait_s: float | None, watch: Callable[[TaskView], None] | None = None) -> Any:
        step_s = self._door.max_wait_s if watch is None else LOOK_EVERY_S
        give_up_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            left_s = step_s if give_up_s is None else max(0.0, min(step_s, give_up_s - time.monotonic()))
            view = self._seen(task_id, left_s)
            if view.task.state == ENDED:
                return result_of(view)
            if watch is not None:
                watch(view.task)
            if give_up_s is not None and time.monotonic() >= give_up_s:
                raise ResultNotReady(f"task {task_id} ({view.task.action}) has no result after {wait_s:g} s")

    def _seen(self, task_id: str, wait_s: float) -> ResultView:
        """What was accepted outlives whoever answers for it, so a restart of that is waited out."""
        give_up_s = time.monotonic() + self._limit.left_s(BACK_WITHIN_S)
        while True:
            try:
                return self._door.result(task_id, wait_s=wait_s)
            except AWAY:
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(ASK_AGAIN_S)

    def cancel(self, task_id: str) -> None:
        self._door.cancel(task_id)

    def depth(self, action: str) -> Depth | None:
        return self._door.depth(action)

    def close(self) -> None:
        self._door.close()


class ReplyCalls:
    """Accepted is confirmed by the broker; results die with this program."""

    is_kept = False

    def __init__(self, app: Canoa, limit: Limit = NO_LIMIT) -> None:
        self._app = app
        self._limit = limit
        self._handles: dict[str, Handle[Any]] = {}

    def start(self, orders: Sequence[Order]) -> list[Started]:
        return [self._started(each) for each in self._app.sync.run(self._submitted(orders))]

    async def _submitted(self, orders: Sequence[Order]) -> list[Handle[Any] | BaseException]:
        await linked(self._app, self._limit)
        submitting = [self._app.submit_raw(order.action, bytes(order.arguments)) for order in orders]
        async with self._limit.kept(DeliveryUnknown, "the broker did not confirm the task"):
            return await asyncio.gather(*submitting, return_exceptions=True)

    def _started(self, answer: Handle[Any] | BaseException) -> Started:
        if isinstance(answer, ArgumentsRefused | PayloadTooLarge):
            return answer
        if isinstance(answer, BaseException):
            raise answer
        self._handles[answer.id] = answer
        return answer.id

    def finish(self, task_id: str, *, wait_s: float | None, watch: Callable[[TaskView], None] | None = None) -> Any:
        result = self._app.sync.run(self._handles[task_id].result(wait_s))
        del self._handles[task_id]
        return result

    def cancel(self, task_id: str) -> None:
        self._app.sync.run(self._handles[task_id].cancel())

    def depth(self, action: str) -> Depth | None:
        return self._app.sync.run(self._app.depth(action))

    def close(self) -> None:
        self._app.sync.close()


def _port(kept: KeptCalls, reply: ReplyCalls) -> tuple[Calls, Calls]:
    return kept, reply
