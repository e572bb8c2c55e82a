"""Asking about kept tasks from outside: the need that commands have, whichever way the answer comes.

`remote.py` asks over HTTP, `questions.py` over the broker. The shapes are those of `recorder/views.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from canoa.execution.outcome import Outcome
from canoa.recorder.views import SubmitOptions
from canoa.vocabulary import TaskId
from canoa.wire.result import Failure, ended_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from canoa.broker.port import Depth
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

ENDED = "ended"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One task to submit. `arguments`: a JSON object, as it was given."""

    action: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    options: SubmitOptions = SubmitOptions()


class RoutedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One task for the managers: of an action, or of a plan (a registered one's name, or what a plan file says).
    `input`: JSON, as it was given."""

    action: str | None = None
    plan: str | dict[str, Any] | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    options: SubmitOptions = SubmitOptions()


class RoutedDoor(Protocol):
    """What only managers answer; also raises `NobodyManages`."""

    def route(self, order: RoutedOrder) -> Submitted:
        """Stored when it returns."""

    def story(self, task_id: str) -> StoryView: ...

    def output(self, task_id: str, step: str) -> OutputView: ...

    def rerun(self, task_id: str) -> TaskView: ...

    def plans(self) -> list[PlanView]: ...

    def plan(self, name: str) -> PlanView: ...

    def register(self, name: str, document: dict[str, Any]) -> Registered: ...

    def nodes(self) -> list[NodeView]: ...

    def node(self, node_id: str) -> NodeView: ...

    def explain(self, action: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        """Where an attempt with so large an input, from that site, would go now, and why."""

    def explain_step(self, plan: str, step: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        """The same of a registered plan's step, by what the plan says of it."""


class Door(RoutedDoor, Protocol):
    """Blocking, for one thread. Every method raises Canoa's own errors: those of the desk, as they were told, and those
    of the way there (`ApiUnreachable`, `BrokerUnreachable`, `NobodyKeeps`, `DeliveryUnknown`)."""

    max_wait_s: float
    """How long one question for a result may wait. Whoever wants to wait longer asks again."""

    def submit(self, orders: Sequence[Order]) -> list[Submitted]:
        """Stored when it returns, in order. More than one may go in several parts: an error leaves those before it."""

    def task(self, task_id: str) -> TaskView: ...

    def result(self, task_id: str, *, wait_s: float = 0) -> ResultView:
        """As soon as it ended, or after `wait_s` as it stands."""

    def cancel(self, task_id: str) -> TaskView: ...

    def tasks(
        self,
        *,
        action: str | None = None,
        state: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage: ...

    def dead(self, *, action: str | None = None, limit: int = 50, cursor: str | None = None) -> LetterPage: ...

    def letter(self, task_id: str) -> LetterView: ...

    def redrive(self, task_ids: Sequence[str]) -> Redriven: ...

    def redrive_all(self, *, action: str | None = None) -> Redriven: ...

    def actions(self) -> list[ActionView]:
        """Those that whoever answers knows by their parameters; a recorder that serves any app knows none."""

    def depth(self, action: str) -> Depth | None:
        """How many tasks wait for an action, and how many workers take them; None where that is not known."""

    def close(self) -> None:
        """Closing twice is allowed."""


def result_of(view: ResultView) -> Any:
    """The result of a task that has ended, or what ended it instead, as a caller of it would hear it."""
    task = view.task
    if task.outcome == Outcome.OK:
        return view.result
    text, kind = task.error or f"it ended as {task.outcome}", view.error_type or ""
    what = Failure(
        message=text.removeprefix(f"{kind}: "),
        error_type=kind,
        attempts=task.attempts,
        traceback=view.traceback or "",
    )
    raise ended_error(task.outcome or "", TaskId(task.id), what)
