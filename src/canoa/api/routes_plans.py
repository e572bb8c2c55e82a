"""Plans that are registered under a name."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, asks, in_path
from canoa.api.errors import documented
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.routed_views import ExplainView, PlanView, Registered

MAX_PLAN_BYTES: Final = 256 * 1024

_NAME: Final = in_path("name", "The plan's name, or its URN.", "power-factor")
_STEP: Final = in_path("step", "The step's name in the plan; `charge.compensation` is what undoes `charge`.", "report")
_DOCUMENT: Final = {
    "plan": "power-factor",
    "steps": {
        "fetch": {"action": "continuum.fetch_data", "with": {"url": "$input.url"}},
        "report": {"action": "continuum.report", "with": {"data": "$fetch"}, "timeout": 5, "retry": 2},
    },
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["steps"]},
                "examples": {"two steps": {"value": _DOCUMENT}},
            }
        },
    }
}

_plan: asked.Body[dict[str, Any]] = asked.Body(dict[str, Any])


def add_routes(api: FastAPI, routed: RoutedDesk) -> None:
    @api.get(
        f"{PREFIX}/plans",
        tags=["plans"],
        operation_id="list_plans",
        summary="The plans that are registered",
        response_model=list[PlanView],
        response_description="By name",
        responses=documented(),
    )
    async def list_plans(_: Request) -> Response:
        return answer(await routed.plans())

    @api.get(
        f"{PREFIX}/plans/{{name}}",
        tags=["plans"],
        operation_id="get_plan",
        summary="One plan, as a plan file says it",
        response_model=PlanView,
        response_description="The plan",
        responses=documented(404),
        openapi_extra={"parameters": [_NAME]},
    )
    async def get_plan(request: Request) -> Response:
        return answer(await routed.plan(asked.plan_name(request)))

    @api.get(
        f"{PREFIX}/plans/{{name}}/steps/{{step}}/explanation",
        tags=["plans"],
        operation_id="explain_step",
        summary="Where a step of a plan would go now, and why",
        response_model=ExplainView,
        response_description="Every node that offers its action: what speaks for it, or what rules it out",
        responses=documented(404, 422),
        openapi_extra={"parameters": [_NAME, _STEP, *asks(asked.ExplainQuery)["parameters"]]},
    )
    async def explain_step(request: Request) -> Response:
        """By what the plan says of it, as the manager sees it that answers. Nothing is sent."""
        wanted = asked.query(request, asked.ExplainQuery)
        name, step = asked.plan_name(request), request.path_params["step"]
        return answer(await routed.explain_step(name, step, size_bytes=wanted.size_bytes, site=wanted.site))

    @api.put(
        f"{PREFIX}/plans/{{name}}",
        tags=["plans"],
        operation_id="register_plan",
        summary="Register a plan under its name",
        response_model=Registered,
        response_description="It is registered",
        responses=documented(404, 408, 413, 415, 422, 507),
        openapi_extra={"parameters": [_NAME], **_BODY},
    )
    async def register_plan(request: Request) -> Response:
        """In place of the one that had the name. Tasks that run keep the plan that they began with."""
        name = asked.plan_name(request)
        document = await _plan.read(request, limit_bytes=MAX_PLAN_BYTES)
        return answer(await routed.register(name, document))
