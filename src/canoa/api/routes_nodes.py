"""Nodes as the managers know them, and the catalogue of what they offer."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, asks, in_path
from canoa.api.errors import documented
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.routed_views import CatalogueEntry, ExplainView, NodeView

_NODE_ID: Final = in_path("node_id", "The id under which it registered.", "gw-7")
_ACTION: Final = in_path("action", "An action's name, `<app>.<action>`, or its URN.", "shop.resize")


def add_routes(api: FastAPI, routed: RoutedDesk) -> None:
    @api.get(
        f"{PREFIX}/nodes",
        tags=["nodes"],
        operation_id="list_nodes",
        summary="Every node: where it stands, what it offers, how it is",
        response_model=list[NodeView],
        response_description="From the edge to the cloud",
        responses=documented(),
    )
    async def list_nodes(_: Request) -> Response:
        return answer(await routed.nodes())

    @api.get(
        f"{PREFIX}/nodes/{{node_id:path}}",
        tags=["nodes"],
        operation_id="get_node",
        summary="One node",
        response_model=NodeView,
        response_description="As it was seen last",
        responses=documented(404),
        openapi_extra={"parameters": [_NODE_ID]},
    )
    async def get_node(request: Request) -> Response:
        return answer(await routed.node(asked.node_id(request)))

    @api.get(
        f"{PREFIX}/catalogue",
        tags=["nodes"],
        operation_id="catalogue",
        summary="Every action that a node offers, and who can run it now",
        response_model=list[CatalogueEntry],
        response_description="By action",
        responses=documented(),
    )
    async def catalogue(_: Request) -> Response:
        """What an app offers to the pool is at `/api/v1/actions`."""
        return answer(await routed.catalogue())

    @api.get(
        f"{PREFIX}/catalogue/{{action}}/explanation",
        tags=["nodes"],
        operation_id="explain",
        summary="Where a call of an action would go now, and why",
        response_model=ExplainView,
        response_description="Every node that offers it: what speaks for it, or what rules it out",
        responses=documented(404, 422),
        openapi_extra={"parameters": [_ACTION, *asks(asked.ExplainQuery)["parameters"]]},
    )
    async def explain(request: Request) -> Response:
        """As the manager sees it that answers. Nothing is sent."""
        wanted = asked.query(request, asked.ExplainQuery)
        return answer(await routed.explain(asked.action(request), size_bytes=wanted.size_bytes, site=wanted.site))
