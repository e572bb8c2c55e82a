"""Tasks: submit, look, wait, cancel, list."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, asks, of_task, takes
from canoa.api.errors import documented
from canoa.api.stopping import Stopping
from canoa.errors import SettingError
from canoa.recorder import views
from canoa.recorder.desk import Desk
from canoa.recorder.routed_views import RoutedRequest
from canoa.recorder.views import ResultView, Submitted, TaskPage, TaskView

_SUBMIT: Final = {"action": "shop.resize", "arguments": {"path": "a.png", "width": 80}}
_LATER: Final = {**_SUBMIT, "options": {"after": 60, "retry": 3, "idempotency_key": "resize-a.png"}}
_PLAN: Final = {"plan": "power-factor", "input": {"url": "http://127.0.0.1:8000/samples"}}

_BY_ID: Final = {"task_id": "$response.body#/id"}
_FOLLOWED_BY: Final[dict[str, Any]] = {
    "links": {
        operation: {"operationId": operation, "parameters": _BY_ID}
        for operation in ("get_task", "get_result", "cancel")
    }
}

_submit: asked.Body[asked.Submit] = asked.Body(asked.Submit)
_batch: asked.Body[asked.Batch] = asked.Body(asked.Batch)


def add_routes(api: FastAPI, desk: Desk, *, stopping: Stopping, limit_bytes: int) -> None:
    """`limit_bytes`: how large the arguments of one request may be, of a batch all together."""
    _add_submitting(api, desk, limit_bytes)
    _add_listing(api, desk)
    _add_one_task(api, desk, stopping)


def _add_submitting(api: FastAPI, desk: Desk, limit_bytes: int) -> None:
    @api.post(
        f"{PREFIX}/tasks",
        tags=["tasks"],
        operation_id="submit",
        summary="Submit a task",
        status_code=201,
        response_model=Submitted,
        response_description="Accepted and stored",
        responses={201: _FOLLOWED_BY, **documented(404, 408, 413, 415, 422, 504, 507)},
        openapi_extra=takes(
            asked.SubmitBody, examples={"now": _SUBMIT, "later, at most once": _LATER, "a registered plan": _PLAN}
        ),
    )
    async def submit(request: Request) -> Response:
        """It is stored before you hear yes. An idempotency key that is known gives the id of its task, and
        `is_new: false`."""
        body = await _submit.read(request, limit_bytes=limit_bytes)
        [done] = await _submitted(desk, [body])
        return answer(done, 201)

    @api.post(
        f"{PREFIX}/tasks/batch",
        tags=["tasks"],
        operation_id="submit_batch",
        summary="Submit many tasks, or none",
        status_code=201,
        response_model=list[Submitted],
        response_description="Accepted and stored, in the order given",
        responses=documented(404, 408, 413, 415, 422, 504, 507),
        openapi_extra=takes(asked.Batch, examples={"two": {"requests": [_SUBMIT, _LATER]}}),
    )
    async def submit_batch(request: Request) -> Response:
        """If one of them is refused, all are. All of them are for the pool, or all are routed."""
        body = await _batch.read(request, limit_bytes=limit_bytes)
        return answer(await _submitted(desk, body.requests), 201)


def _add_listing(api: FastAPI, desk: Desk) -> None:
    @api.get(
        f"{PREFIX}/tasks",
        tags=["tasks"],
        operation_id="list_tasks",
        summary="List tasks, the newest first",
        response_model=TaskPage,
        response_description="A page",
        responses=documented(422),
        openapi_extra=asks(asked.TasksQuery),
    )
    async def list_tasks(request: Request) -> Response:
        """A page at a time: give its `next` as `cursor` for the one behind it."""
        return answer(await desk.tasks(**asked.given(asked.query(request, asked.TasksQuery))))


def _add_one_task(api: FastAPI, desk: Desk, stopping: Stopping) -> None:
    @api.get(
        f"{PREFIX}/tasks/{{task_id}}",
        tags=["tasks"],
        operation_id="get_task",
        summary="Where a task stands",
        response_model=TaskView,
        response_description="As it stands",
        responses=documented(404),
        openapi_extra=of_task(),
    )
    async def get_task(request: Request) -> Response:
        return answer(await desk.task(asked.task_id(request)))

    @api.get(
        f"{PREFIX}/tasks/{{task_id}}/result",
        tags=["tasks"],
        operation_id="get_result",
        summary="How a task ended, waiting for it if asked to",
        response_model=ResultView,
        response_description="It ended; `task.outcome` says how",
        responses={202: {"model": ResultView, "description": "It has not ended yet"}, **documented(404, 406, 422)},
        openapi_extra=of_task(asked.WaitQuery),
    )
    async def get_result(request: Request) -> Response:
        """With `wait`, the answer comes as soon as the task ends, or after so many seconds. A failure is an answer
        like any other (200): `result` is there when `task.outcome` is `ok`, `error_type` and `traceback` otherwise."""
        wait_s = asked.query(request, asked.WaitQuery).wait
        view = await _waited(desk, asked.task_id(request), wait_s, stopping)
        return answer(view, 200 if view.task.outcome is not None else 202)

    @api.post(
        f"{PREFIX}/tasks/{{task_id}}/cancel",
        tags=["tasks"],
        operation_id="cancel",
        summary="Cancel a task",
        response_model=TaskView,
        response_description="As it stands then",
        responses=documented(404),
        openapi_extra=of_task(),
    )
    async def cancel(request: Request) -> Response:
        """It ends as cancelled, unless it has ended. Workers that hear of it in time skip it or interrupt it."""
        return answer(await desk.cancel(asked.task_id(request)))


async def _submitted(desk: Desk, bodies: list[asked.Submit]) -> list[Submitted]:
    requests = [each.request() for each in bodies]
    pool = [each for each in requests if isinstance(each, views.Request)]
    routed = [each for each in requests if isinstance(each, RoutedRequest)]
    if pool and routed:
        raise SettingError("some of these tasks are routed and some are not; submit them apart")
    if routed:
        return await desk.routed.submit(routed)
    return [await desk.submit(pool[0])] if len(pool) == 1 else await desk.submit_many(pool)


async def _waited(desk: Desk, task_id: str, wait_s: float, stopping: Stopping) -> ResultView:
    if wait_s:
        try:
            async with stopping.interrupts():
                return await desk.result(task_id, wait_s=wait_s)
        except TimeoutError:  # the server stops: say how it stands
            pass
    return await desk.result(task_id)
