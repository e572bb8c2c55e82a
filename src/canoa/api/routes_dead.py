"""Dead letters: list, look, send again."""

from __future__ import annotations

from fastapi import FastAPI
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, asks, of_task, takes
from canoa.api.errors import documented
from canoa.errors import SettingError
from canoa.recorder.desk import Desk
from canoa.recorder.views import LetterPage, LetterView, Redriven

_redrive: asked.Body[asked.Redrive] = asked.Body(asked.Redrive)


def add_routes(api: FastAPI, desk: Desk) -> None:
    @api.get(
        f"{PREFIX}/dead",
        tags=["dead letters"],
        operation_id="list_dead",
        summary="List dead letters, the newest first",
        response_model=LetterPage,
        response_description="A page",
        responses=documented(422),
        openapi_extra=asks(asked.DeadQuery),
    )
    async def list_dead(request: Request) -> Response:
        """Those that were sent again are no longer here."""
        return answer(await desk.dead(**asked.given(asked.query(request, asked.DeadQuery))))

    @api.post(
        f"{PREFIX}/dead/redrive",
        tags=["dead letters"],
        operation_id="redrive",
        summary="Send dead letters again",
        response_model=Redriven,
        response_description="Which were sent again, and which not",
        responses=documented(408, 413, 415, 422, 507),
        openapi_extra=takes(
            asked.RedriveBody,
            examples={
                "some": {"ids": ["0192f0c1a7b27c3e9d5e4f60718293a4"]},
                "of one action": {"action": "shop.resize"},
                "all": {},
            },
        ),
    )
    async def redrive(request: Request) -> Response:
        """A letter is sent again once, however often this is asked; should its task die again, it is a new letter."""
        body = await _redrive.read(request, limit_bytes=asked.MAX_BATCH * asked.MAX_ID_BYTES)
        return answer(await _redriven(desk, body))

    @api.get(
        f"{PREFIX}/dead/{{task_id}}",
        tags=["dead letters"],
        operation_id="get_dead",
        summary="Why a task died",
        response_model=LetterView,
        response_description="The letter",
        responses=documented(404),
        openapi_extra=of_task(),
    )
    async def get_dead(request: Request) -> Response:
        return answer(await desk.letter(asked.task_id(request)))


async def _redriven(desk: Desk, body: asked.Redrive) -> Redriven:
    if body.ids is UNSET:
        return await desk.redrive_all(action=None if body.action is UNSET else body.action)
    if body.action is not UNSET:
        raise SettingError("`ids` and `action` are both given; send one of them, or neither for all there are")
    return await desk.redrive(body.ids)
