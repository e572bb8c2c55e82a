"""Who may come in: asked under a name of ours, with the token. Before anything of the request is read.

A page in somebody's browser must not reach us under another name (DNS rebinding): the Host header is checked also
where no token is needed. No CORS: no page of another origin may read an answer.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from canoa.api.answers import refusal
from canoa.errors import SettingError

OPEN_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/actuator/health", "/sapparchi/nodes/register", "/sapparchi/results"}
)
"""What a supervisor or a node asks, who has no token. They tell nothing about tasks."""

READABLE_PATHS: Final = frozenset({"/docs", "/openapi.json"})
"""What a browser opens: it cannot send a bearer token, but asks its user for a password. These change nothing, so a
foreign page that makes the browser send it along gains nothing."""

MIN_TOKEN_CHARS: Final = 16
"""Shorter ones can be guessed."""


_NOT_OUR_NAME: Final = refusal(400, "WrongHost", "this Host header is not a name of ours; allow it with --allow-host")


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], token: str) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts if not host.startswith("*"))
        self._endings = tuple(host[1:].lower() for host in hosts if host.startswith("*"))  # "*": any
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is spoken here
            return
        headers = dict(scope["headers"])
        path = scope["path"]
        if not self._is_our_name(headers.get(b"host", b"")):
            await _NOT_OUR_NAME(scope, receive, send)
        elif path in OPEN_PATHS or self._has_token(headers.get(b"authorization", b""), path):
            await self._app(scope, receive, send)
        else:
            await _not_let_in(path)(scope, receive, send)

    def _is_our_name(self, host: bytes) -> bool:
        name = _without_port(host.decode("latin-1").strip().lower())
        return bool(name) and (name in self._hosts or name.endswith(self._endings))

    def _has_token(self, authorization: bytes, path: str) -> bool:
        scheme, _, given = authorization.partition(b" ")
        kind = scheme.lower()
        if kind == b"basic" and path in READABLE_PATHS:
            given = _password(given)
        elif kind != b"bearer":
            return False
        return hmac.compare_digest(given.strip(), self._token)


def checked_token(token: str) -> str:
    """A token that can stand in a header and cannot be guessed, or `SettingError`. It is not shown."""
    if len(token) < MIN_TOKEN_CHARS or not (token.isascii() and token.isprintable()) or " " in token:
        raise SettingError(
            f"the API's token has {len(token)} characters; use {MIN_TOKEN_CHARS} or more, of ASCII, without blanks"
        )
    return token


def _not_let_in(path: str) -> Response:
    challenge = 'Bearer realm="canoa"'
    if path in READABLE_PATHS:
        challenge += ', Basic realm="canoa: any name, the token as password"'
    text = "no token, or a wrong one; send the header `Authorization: Bearer <token>`"
    return refusal(401, "Unauthorized", text, headers={"WWW-Authenticate": challenge})


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _password(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
