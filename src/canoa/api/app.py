"""The API put together: routes, guard, errors, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import (
    asked,
    documents,
    errors,
    roles,
    routes_dead,
    routes_live,
    routes_nodes,
    routes_plans,
    routes_probes,
    routes_steps,
    routes_tasks,
    routes_tokens,
    routes_wire,
)
from canoa.api.answers import PlainRoute, Refusal, answer
from canoa.api.docs_page import rendered
from canoa.api.guard import Guard, checked_token
from canoa.api.readiness import Readiness
from canoa.api.sse import Listeners
from canoa.api.stopping import Stopping
from canoa.api.tracing import JoinsTrace
from canoa.app import Canoa
from canoa.recorder.desk import Desk
from canoa.recorder.metrics import RecorderCollector
from canoa.vocabulary import Layer
from canoa.worker.metrics import WorkerCollector, exposition, new_registry
from canoa.worker.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Served:
    """What an API serves. Without a desk there are only the probes and the metrics; `collectors`: more of those."""

    app: Canoa
    readiness: Readiness
    desk: Desk | None = None
    worker: Worker | None = None
    collectors: Sequence[Collector] = ()
    stopping: Stopping = field(default_factory=Stopping)
    listeners: Listeners = field(default_factory=Listeners)


def new_api(served: Served, *, hosts: Sequence[str], token: str) -> FastAPI:
    """`hosts`: what the Host header may say. `token`: the admin's, which always works; the desk knows others."""
    open_paths = roles.OPEN_PATHS | (frozenset() if served.app.settings.node_tokens else roles.NODE_PATHS)
    tokens = None if served.desk is None or served.desk.tokens is None else served.desk.tokens.known
    api = FastAPI(
        title=f"Canoa: {served.app.name}",
        version=version("canoa"),
        summary="Kept tasks over HTTP",
        description=documents.PROLOGUE,
        openapi_tags=documents.TAGS,
        openapi_url=None,  # served below, as is the page: the ones that come along fetch code from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.router.route_class = PlainRoute
    api.add_middleware(JoinsTrace)  # behind the guard, which is asked first
    api.add_middleware(Guard, hosts=hosts, token=checked_token(token), tokens=tokens, open_paths=open_paths)
    errors.add_handlers(api)
    if served.desk is not None:  # first: routes are tried in their order
        _include_desk(api, served, served.desk)
    metrics = _metrics_of(served)
    routes_probes.add_routes(api, served.app.name, worker=served.worker, readiness=served.readiness, metrics=metrics)
    routes_probes.add_manager_route(api, None if served.desk is None else served.desk.routed, served.readiness)
    _include_documents(api, open_paths)
    return api


def _include_desk(api: FastAPI, served: Served, desk: Desk) -> None:
    limit_bytes = served.app.settings.max_payload_bytes
    routes_tasks.add_routes(api, desk, stopping=served.stopping, limit_bytes=limit_bytes)
    routes_steps.add_routes(api, desk)
    routes_plans.add_routes(api, desk.routed)
    routes_nodes.add_routes(api, desk.routed)
    routes_wire.add_routes(api, desk.routed, limit_bytes=limit_bytes)
    routes_dead.add_routes(api, desk)
    routes_live.add_routes(api, desk, stopping=served.stopping, listeners=served.listeners)
    if desk.tokens is not None:
        routes_tokens.add_routes(api, desk.tokens)


def _include_documents(api: FastAPI, open_paths: frozenset[str]) -> None:
    @cache
    def document() -> dict[str, Any]:
        return _completed(api.openapi(), open_paths)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi(_: Request) -> Response:
        return answer(document())

    @api.get("/docs", include_in_schema=False)
    async def docs(_: Request) -> Response:
        return Response(rendered(document()), media_type="text/html")


def _completed(document: dict[str, Any], open_paths: frozenset[str]) -> dict[str, Any]:
    """With what FastAPI cannot know: the bodies, which it does not read, and the token, which it does not check."""
    components = document.setdefault("components", {})
    components["schemas"] = components.get("schemas", {}) | documents.schemas(
        [asked.Submit, asked.Batch, asked.Redrive, asked.CreateToken, Refusal]
    )
    components["securitySchemes"] = {"token": documents.TOKEN_SCHEME}
    document["security"] = [{"token": []}]
    documents.tell_roles(document, open_paths)
    return document


def _metrics_of(served: Served) -> Callable[[], bytes]:
    """The worker's figures, or those of a process without one, and the others' behind them."""
    worker, desk = served.worker, served.desk
    registries = [new_registry(WorkerCollector({}, Layer.CLOUD)) if worker is None else worker.registry]
    collectors = [*served.collectors] if desk is None else [RecorderCollector(desk.stats), *served.collectors]
    for each in collectors:
        registries.append(CollectorRegistry())
        registries[-1].register(each)
    return lambda: b"".join(map(exposition, registries))
