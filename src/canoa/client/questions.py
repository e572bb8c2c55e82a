"""The broker as a door: recorders offer the desk as actions (`canoa.tasks`, …), so a question is a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from canoa.app import Canoa
from canoa.client.asking import MAX_WAIT_S, PATIENT, SYSTEM, Patience, ask, ask_each
from canoa.errors import BrokerUnreachable
from canoa.recorder.routed_views import ExplainView, NodeView, OutputView, PlanView, Registered, StoryView
from canoa.recorder.views import (
    ActionView,
    LetterPage,
    LetterView,
    Redriven,
    ResultView,
    Submitted,
    TaskPage,
    TaskView,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Depth
    from canoa.client.door import Door, Order, RoutedOrder

T = TypeVar("T")

AT_ONCE: Final = 200
"""Tasks submitted at the same time: fills a recorder's group, and bounds what is in doubt when the link breaks."""


class Questions:
    max_wait_s: float = MAX_WAIT_S

    def __init__(self, broker: str, patience: Patience = PATIENT) -> None:
        self._app = Canoa(SYSTEM, broker=broker)
        self._patience = patience

    def close(self) -> None:
        self._app.sync.close()

    # --- Submitting -----------------------------------------------------------------------------------

    def submit(self, orders: Sequence[Order]) -> list[Submitted]:
        done: list[Submitted] = []
        for start in range(0, len(orders), AT_ONCE):
            bodies = [msgspec.json.encode(order) for order in orders[start : start + AT_ONCE]]
            asking = ask_each(self._app, "submit", bodies, is_repeatable=False, patience=self._patience)
            done += msgspec.convert(self._app.sync.run(asking), list[Submitted])
        return done

    # --- One task -------------------------------------------------------------------------------------

    def task(self, task_id: str) -> TaskView:
        return self._ask("task", TaskView, task_id=task_id)

    def result(self, task_id: str, *, wait_s: float = 0) -> ResultView:
        return self._ask("result", ResultView, task_id=task_id, wait_s=min(wait_s, self.max_wait_s))

    def cancel(self, task_id: str) -> TaskView:
        return self._ask("cancel", TaskView, task_id=task_id)

    # --- Many -----------------------------------------------------------------------------------------

    def tasks(
        self,
        *,
        action: str | None = None,
        state: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        wanted = {"action": action, "state": state, "outcome": outcome}
        return self._ask("tasks", TaskPage, **wanted, limit=limit, cursor=cursor)

    def dead(self, *, action: str | None = None, limit: int = 50, cursor: str | None = None) -> LetterPage:
        return self._ask("dead", LetterPage, action=action, limit=limit, cursor=cursor)

    def letter(self, task_id: str) -> LetterView:
        return self._ask("letter", LetterView, task_id=task_id)

    def redrive(self, task_ids: Sequence[str]) -> Redriven:
        return self._ask("redrive", Redriven, task_ids=list(task_ids))

    def redrive_all(self, *, action: str | None = None) -> Redriven:
        return self._ask("redrive", Redriven, action=action)

    def actions(self) -> list[ActionView]:
        return self._ask("actions", list[ActionView])

    def depth(self, action: str) -> Depth | None:
        """The broker itself knows."""
        return self._app.sync.run(self._depth(action))

    async def _depth(self, action: str) -> Depth:
        async with self._patience.limit.kept(BrokerUnreachable, "no answer from the broker"):
            return await self._app.depth(action)

    # --- What managers answer -------------------------------------------------------------------------

    def route(self, order: RoutedOrder) -> Submitted:
        asking = ask(
            self._app,
            "route",
            msgspec.json.encode(order),
            is_repeatable=False,
            is_routed=True,
            patience=self._patience,
        )
        return msgspec.convert(self._app.sync.run(asking), Submitted)

    def story(self, task_id: str) -> StoryView:
        return self._ask_managers("story", StoryView, task_id=task_id)

    def output(self, task_id: str, step: str) -> OutputView:
        return self._ask_managers("output", OutputView, task_id=task_id, step=step)

    def rerun(self, task_id: str) -> TaskView:
        return self._ask_managers("rerun", TaskView, task_id=task_id)

    def plans(self) -> list[PlanView]:
        return self._ask_managers("plans", list[PlanView])

    def plan(self, name: str) -> PlanView:
        return self._ask_managers("plan", PlanView, name=name)

    def register(self, name: str, document: dict[str, Any]) -> Registered:
        return self._ask_managers("register", Registered, name=name, document=document)

    def nodes(self) -> list[NodeView]:
        return self._ask_managers("nodes", list[NodeView])

    def node(self, node_id: str) -> NodeView:
        return self._ask_managers("node", NodeView, node_id=node_id)

    def explain(self, action: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        said = {"site": site} if site else {}  # a manager of before knows of none
        return self._ask_managers("explain", ExplainView, action=action, size_bytes=size_bytes, **said)

    def explain_step(self, plan: str, step: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        return self._ask_managers("explain_step", ExplainView, plan=plan, step=step, size_bytes=size_bytes, site=site)

    def _ask_managers(self, name: str, type_: type[T], /, **arguments: Any) -> T:
        body = msgspec.json.encode(arguments)
        asking = ask(self._app, name, body, is_routed=True, patience=self._patience)
        return msgspec.convert(self._app.sync.run(asking), type_)

    # --- Asking ---------------------------------------------------------------------------------------

    def _ask(self, name: str, type_: type[T], **arguments: Any) -> T:
        body = msgspec.json.encode(arguments)
        asking = ask(self._app, name, body, wait_s=arguments.get("wait_s", 0), patience=self._patience)
        return msgspec.convert(self._app.sync.run(asking), type_)


def _port(questions: Questions) -> Door:
    return questions
