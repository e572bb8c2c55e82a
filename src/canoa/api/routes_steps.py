"""Routed tasks: their steps with every attempt, what a step gave, and running again what went wrong."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, in_path, of_task
from canoa.api.errors import documented
from canoa.recorder.desk import Desk
from canoa.recorder.routed_views import OutputView, StoryView
from canoa.recorder.views import TaskView

_STEP: Final = in_path("step", "The step's name in its plan.", "fetch")


def add_routes(api: FastAPI, desk: Desk) -> None:
    @api.get(
        f"{PREFIX}/tasks/{{task_id}}/steps",
        tags=["tasks"],
        operation_id="get_steps",
        summary="The whole story of a routed task",
        response_model=StoryView,
        response_description="Its steps so far",
        responses=documented(404),
        openapi_extra=of_task(),
    )
    async def get_steps(request: Request) -> Response:
        """Each step, each attempt, which node and why, how long it queued, travelled and ran."""
        return answer(await desk.story(asked.task_id(request)))

    @api.get(
        f"{PREFIX}/tasks/{{task_id}}/steps/{{step}}",
        tags=["tasks"],
        operation_id="get_step",
        summary="What one step gave",
        response_model=OutputView,
        response_description="As it stands",
        responses=documented(404, 406, 422),
        openapi_extra={"parameters": [*of_task()["parameters"], _STEP]},
    )
    async def get_step(request: Request) -> Response:
        """Also while other steps run, or after they failed."""
        return answer(await desk.output(asked.task_id(request), request.path_params["step"]))

    @api.post(
        f"{PREFIX}/tasks/{{task_id}}/rerun",
        tags=["tasks"],
        operation_id="rerun",
        summary="Run again what went wrong",
        response_model=TaskView,
        response_description="As it stands then",
        responses=documented(404, 422, 507),
        openapi_extra=of_task(),
    )
    async def rerun(request: Request) -> Response:
        """Of a routed task that ended badly. Steps that succeeded keep their results, and do not run again."""
        return answer(await desk.rerun(asked.task_id(request)))
