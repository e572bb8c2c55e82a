"""For supervisors and Prometheus: alive, ready, and what is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from canoa.api.answers import answer, refusal
from canoa.api.documents import NO_TOKEN
from canoa.api.errors import documented, refused
from canoa.api.readiness import Readiness
from canoa.recorder.routed_desk import RoutedDesk
from canoa.worker.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Health:
    """The process answers. `node_id` and `in_progress` are its worker's, if it has one."""

    status: str
    app: str
    node_id: str | None
    in_progress: int
    uptime_s: float


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A message went through the broker and came back."""

    status: str
    round_trip_ms: float


@dataclass(frozen=True, kw_only=True)
class ManagerUp:
    """`UP`: it takes registrations, requests and results."""

    status: str


@dataclass(frozen=True, kw_only=True)
class ManagerDown:
    status: str
    reason: str


MANAGER_HEADER = "Canoa-Manager"
"""Which one answers: nodes that look now and then see that it was started anew."""

_NOT_READY = refused("No message came back through the broker")
_METRICS = {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}


def add_routes(
    api: FastAPI, app_name: str, *, worker: Worker | None, readiness: Readiness, metrics: Callable[[], bytes]
) -> None:
    started_s = time.monotonic()

    @api.get(
        "/healthz",
        tags=["probes"],
        operation_id="healthz",
        summary="Whether the process lives",
        response_model=Health,
        response_description="It lives",
        responses={400: documented()[400]},
        openapi_extra=NO_TOKEN,
    )
    async def healthz(_: Request) -> Response:
        """Whether work can arrive is another question: `/readyz`."""
        return answer(
            Health(
                status="ok",
                app=app_name,
                node_id=None if worker is None else worker.node_id,
                in_progress=0 if worker is None else worker.in_progress,
                uptime_s=round(time.monotonic() - started_s, 1),
            )
        )

    @api.get(
        "/readyz",
        tags=["probes"],
        operation_id="readyz",
        summary="Whether work can arrive, proven by a message through the broker",
        response_model=Ready,
        response_description="Work can arrive",
        responses={400: documented()[400], 503: _NOT_READY},
        openapi_extra=NO_TOKEN,
    )
    async def readyz(_: Request) -> Response:
        """At most one probe a second, shared by all who ask."""
        verdict = await readiness.verdict()
        if verdict.round_trip_ms is None:
            return refusal(503, "NotReady", verdict.reason or "", headers={"Retry-After": "1"})
        return answer(Ready(status="ready", round_trip_ms=verdict.round_trip_ms))

    @api.get(
        "/metrics",
        tags=["probes"],
        operation_id="metrics",
        summary="What is counted here, for Prometheus",
        response_class=Response,
        responses={200: _METRICS, **documented()},
    )
    async def read_metrics(_: Request) -> Response:
        return Response(metrics(), media_type=CONTENT_TYPE_LATEST)


def add_manager_route(api: FastAPI, routed: RoutedDesk | None, readiness: Readiness) -> None:
    @api.get(
        "/actuator/health",
        tags=["probes"],
        operation_id="manager_health",
        summary="Whether the manager works, as nodes ask it",
        response_model=ManagerUp,
        response_description="It works",
        responses={400: documented()[400], 503: {"model": ManagerDown, "description": "It does not"}},
        openapi_extra=NO_TOKEN,
    )
    async def manager_health(_: Request) -> Response:
        """Proven by a message through the broker, at most one a second."""
        trouble = "no manager runs here" if routed is None else routed.trouble
        reason = trouble or (await readiness.verdict()).reason
        which = None if routed is None or routed.managing is None else {MANAGER_HEADER: routed.managing.id}
        if reason:
            return answer(ManagerDown(status="DOWN", reason=reason), 503, headers=which)
        return answer(ManagerUp(status="UP"), headers=which)
