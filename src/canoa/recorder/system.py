"""The desk as actions: recorders offer them on the broker, so that questions travel like any other call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.recorder.views import (
    ActionView,
    LetterPage,
    LetterView,
    Redriven,
    Request,
    ResultView,
    SubmitOptions,
    Submitted,
    TaskPage,
    TaskView,
)

if TYPE_CHECKING:
    from canoa.app import Canoa
    from canoa.recorder.desk import Desk

APP: Final = "canoa"
MAX_WAIT_S: Final = 20.0
"""How long one question may wait for a task's end. Who wants to wait longer asks again."""


def offer(system: Canoa, desk: Desk) -> None:
    """Define them on `system`, an app of the name `APP`."""

    @system.action()
    async def submit(action: str, arguments: dict[str, object], options: SubmitOptions | None = None) -> Submitted:
        request = Request(action=action, arguments=dict(arguments), options=options or SubmitOptions())
        return await desk.submit(request)

    @system.action()
    async def task(task_id: str) -> TaskView:
        return await desk.task(task_id)

    @system.action(timeout=MAX_WAIT_S + 10)
    async def result(task_id: str, wait_s: float = 0) -> ResultView:
        return await desk.result(task_id, wait_s=min(wait_s, MAX_WAIT_S))

    @system.action()
    async def cancel(task_id: str) -> TaskView:
        return await desk.cancel(task_id)

    @system.action()
    async def tasks(
        action: str | None = None,
        state: str | None = None,
        outcome: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        return await desk.tasks(action=action, state=state, outcome=outcome, limit=limit, cursor=cursor)

    @system.action()
    async def dead(action: str | None = None, limit: int = 50, cursor: str | None = None) -> LetterPage:
        return await desk.dead(action=action, limit=limit, cursor=cursor)

    @system.action()
    async def letter(task_id: str) -> LetterView:
        return await desk.letter(task_id)

    @system.action()
    async def redrive(task_ids: list[str] | None = None, action: str | None = None) -> Redriven:
        """The named ones; without names all, or all of an action."""
        return await (desk.redrive_all(action=action) if task_ids is None else desk.redrive(task_ids))

    @system.action()
    async def actions() -> list[ActionView]:
        return await desk.actions()
