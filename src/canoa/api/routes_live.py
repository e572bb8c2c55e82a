"""What is offered, and what happens: actions and events."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, asks
from canoa.api.errors import documented
from canoa.api.sse import EventStream, Listeners
from canoa.api.stopping import Stopping
from canoa.recorder.desk import Desk
from canoa.recorder.views import ActionView

_STREAM = {
    "description": "Events for as long as you listen: `id` (a number), `event` (its kind), `data` (JSON).",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


def add_routes(api: FastAPI, desk: Desk, *, stopping: Stopping, listeners: Listeners) -> None:
    @api.get(
        f"{PREFIX}/actions",
        operation_id="list_actions",
        tags=["actions"],
        summary="What can be submitted",
        response_model=list[ActionView],
        response_description="Those that this program knows",
        responses=documented(),
    )
    async def list_actions(_: Request) -> Response:
        return answer(await desk.actions())

    @api.get(
        f"{PREFIX}/events",
        operation_id="follow_events",
        tags=["events"],
        summary="What happens, as it happens (server-sent events)",
        response_class=Response,
        responses={200: _STREAM, **documented(422, 429)},
        openapi_extra=asks(asked.EventsQuery),
    )
    async def follow_events(request: Request) -> Response:
        """Of all there is: tasks (`accepted`, `progress`, `ended`, `dead`, `redriven`), their steps (`step_sent`,
        `step_ended`), nodes (`node_joined`, `node_left`, `node_changed`, `node_health`, `node_proof`) and plans
        (`plan_registered`). Or of one task (`task`), of one action's tasks (`action`), of one node and of steps there
        (`node`). What is about a node or a plan has an empty `task_id` and an empty `action`. A comment comes every
        15 s where nothing happens. A listener that is too slow gets `lagged` in place of what it missed; nothing is
        sent again."""
        wanted = asked.given(asked.query(request, asked.EventsQuery))
        listeners.require_room()
        events = desk.events(task_id=wanted.get("task"), action=wanted.get("action"), node_id=wanted.get("node"))
        return EventStream(events, listeners=listeners, stopping=stopping)
