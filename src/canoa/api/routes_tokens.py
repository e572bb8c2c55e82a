"""Tokens: make them, list them, revoke them. For admins."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import PREFIX, in_path, takes
from canoa.api.errors import documented
from canoa.recorder.token_desk import TokenDesk
from canoa.recorder.token_views import MadeToken, TokenView

MAX_BODY_BYTES: Final = 4096

_NAME: Final = in_path("name", "The token's name.", "ci")
_CI: Final = {"name": "ci", "role": "operator", "expires_s": 2_592_000}
_GUEST: Final = {"name": "guest", "role": "viewer"}

_create: asked.Body[asked.CreateToken] = asked.Body(asked.CreateToken)


def add_routes(api: FastAPI, desk: TokenDesk) -> None:
    @api.get(
        f"{PREFIX}/tokens",
        tags=["tokens"],
        operation_id="list_tokens",
        summary="Every token: its role, and whether it is live",
        response_model=list[TokenView],
        response_description="By name",
        responses=documented(),
    )
    async def list_tokens(_: Request) -> Response:
        """No secrets: they are kept nowhere. Those that were revoked or have expired are here for 30 days."""
        return answer(await desk.list())

    @api.post(
        f"{PREFIX}/tokens",
        tags=["tokens"],
        operation_id="create_token",
        summary="Make a token",
        status_code=201,
        response_model=MadeToken,
        response_description="It is live. Its secret is told this once",
        responses=documented(408, 409, 413, 415, 422, 507),
        openapi_extra=takes(asked.CreateToken, examples={"for 30 days": _CI, "until it is revoked": _GUEST}),
    )
    async def create_token(request: Request) -> Response:
        """A name may be given again once the token that had it was revoked or has expired."""
        body = await _create.read(request, limit_bytes=MAX_BODY_BYTES)
        made = await desk.create(body.name, body.role, expires_s=body.expires_s)
        return answer(made, 201, headers={"Cache-Control": "no-store"})

    @api.post(
        f"{PREFIX}/tokens/{{name}}/revoke",
        tags=["tokens"],
        operation_id="revoke_token",
        summary="Revoke a token",
        response_model=TokenView,
        response_description="As it stands then",
        responses=documented(404, 507),
        openapi_extra={"parameters": [_NAME]},
    )
    async def revoke_token(request: Request) -> Response:
        """It opens nothing any more: here at once, in other processes within seconds."""
        return answer(await desk.revoke(asked.token_name(request)))
