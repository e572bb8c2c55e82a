"""The desk as actions: recorders offer them on the broker, so that questions travel like any other call."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from canoa.client.asking import MAX_WAIT_S, RUN_WITHIN_S, SYSTEM
from canoa.recorder.routed_views import (
    CatalogueEntry,
    ExplainView,
    NodeView,
    OutputView,
    PlanView,
    Registered,
    RoutedRequest,
    StoryView,
)
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
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.app import Canoa
    from canoa.recorder.desk import Desk


QUESTIONS_AT_ONCE: Final = 500
WAITERS_AT_ONCE: Final = 1000
"""Questions that may wait for a task to end. That costs memory, and a look into the store now and then."""

DRAIN_S: Final = 1.0


@asynccontextmanager
async def answering(app: Canoa, desk: Desk) -> AsyncIterator[None]:
    """Offers them on the app's broker inside the block. Those who wait have a worker of their own: in one with the
    others, they would take all its places, and a question of a millisecond would wait for their tasks to end."""
    prompt, waiting = app.twin(SYSTEM), app.twin(SYSTEM)
    _offer_prompt(prompt, desk)
    _offer_waiting(waiting, desk)
    async with (
        prompt.worker_with(WorkerSettings(concurrency=QUESTIONS_AT_ONCE, drain_s=DRAIN_S, join=False)),
        waiting.worker_with(WorkerSettings(concurrency=WAITERS_AT_ONCE, drain_s=DRAIN_S, join=False)),
    ):
        yield


@asynccontextmanager
async def answering_routed(app: Canoa, desk: Desk) -> AsyncIterator[None]:
    """Offers what only managers can answer. Apart from the others, which recorders answer as well."""
    managers = app.twin(SYSTEM)
    _offer_routed(managers, desk)
    async with managers.worker_with(WorkerSettings(concurrency=QUESTIONS_AT_ONCE, drain_s=DRAIN_S, join=False)):
        yield


def _offer_waiting(system: Canoa, desk: Desk) -> None:
    @system.action(timeout=MAX_WAIT_S + RUN_WITHIN_S)
    async def result(task_id: str, wait_s: float = 0) -> ResultView:
        return await desk.result(task_id, wait_s=min(wait_s, MAX_WAIT_S))


def _offer_prompt(system: Canoa, desk: Desk) -> None:
    @system.action()
    async def submit(action: str, arguments: dict[str, object], options: SubmitOptions | None = None) -> Submitted:
        request = Request(action=action, arguments=dict(arguments), options=options or SubmitOptions())
        return await desk.submit(request)

    @system.action()
    async def task(task_id: str) -> TaskView:
        return await desk.task(task_id)

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


def _offer_routed(system: Canoa, desk: Desk) -> None:
    routed = desk.routed

    @system.action()
    async def route(
        action: str | None = None,
        plan: str | dict[str, Any] | None = None,
        input: Any = None,
        options: SubmitOptions | None = None,
    ) -> Submitted:
        request = RoutedRequest(action=action, plan=plan, input=input, options=options or SubmitOptions())
        [done] = await routed.submit([request])
        return done

    @system.action()
    async def cancel_routed(task_id: str) -> TaskView:
        return await desk.cancel(task_id)

    @system.action()
    async def story(task_id: str) -> StoryView:
        return await desk.story(task_id)

    @system.action()
    async def output(task_id: str, step: str) -> OutputView:
        return await desk.output(task_id, step)

    @system.action()
    async def rerun(task_id: str) -> TaskView:
        return await desk.rerun(task_id)

    @system.action()
    async def plans() -> list[PlanView]:
        return await routed.plans()

    @system.action()
    async def plan(name: str) -> PlanView:
        return await routed.plan(name)

    @system.action()
    async def register(name: str, document: dict[str, Any]) -> Registered:
        return await routed.register(name, document)

    @system.action()
    async def nodes() -> list[NodeView]:
        return await routed.nodes()

    @system.action()
    async def node(node_id: str) -> NodeView:
        return await routed.node(node_id)

    @system.action()
    async def explain(action: str, size_bytes: int = 0, site: str = "") -> ExplainView:
        return await routed.explain(action, size_bytes=size_bytes, site=site)

    @system.action()
    async def explain_step(plan: str, step: str, size_bytes: int = 0, site: str = "") -> ExplainView:
        return await routed.explain_step(plan, step, size_bytes=size_bytes, site=site)

    @system.action()
    async def catalogue() -> list[CatalogueEntry]:
        return await routed.catalogue()
