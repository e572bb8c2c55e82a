"""Who may come in: asked under a name of ours, with a token whose role is enough. Before anything else is read.

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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from canoa.api import roles
from canoa.api.answers import refusal
from canoa.api.errors import RETRY_AFTER_S
from canoa.errors import SettingError, StoreUnreachable
from canoa.recorder.known_tokens import KnownTokens
from canoa.store.token_port import TokenRow
from canoa.vocabulary import Role

READABLE_PATHS: Final = frozenset({"/docs", "/openapi.json"})
"""What a browser opens: it cannot send a bearer token, but asks its user for a password. These change nothing, so a
foreign page that makes the browser send it along gains nothing."""

MIN_TOKEN_CHARS: Final = 16
"""Shorter ones can be guessed."""


_NOT_OUR_NAME: Final = refusal(400, "WrongHost", "this Host header is not a name of ours; allow it with --allow-host")


class Guard:
    """ASGI middleware. `token`: of the settings, an admin's, which always works; `tokens`: those of the store."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Sequence[str],
        token: str,
        tokens: KnownTokens | None = None,
        open_paths: frozenset[str] = roles.OPEN_PATHS,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts if not host.startswith("*"))
        self._endings = tuple(host[1:].lower() for host in hosts if host.startswith("*"))  # "*": any
        self._token = token.encode()
        self._tokens = tokens
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is spoken here
            return
        headers = dict(scope["headers"])
        path = scope["path"]
        if not self._is_our_name(headers.get(b"host", b"")):
            await _NOT_OUR_NAME(scope, receive, send)
            return
        secret = _secret(headers.get(b"authorization", b""), path)
        if path in self._open_paths or (secret is not None and hmac.compare_digest(secret, self._token)):
            await self._app(scope, receive, send)
        else:
            await self._with_token(secret, scope, receive, send)

    def _is_our_name(self, host: bytes) -> bool:
        name = _without_port(host.decode("latin-1").strip().lower())
        return bool(name) and (name in self._hosts or name.endswith(self._endings))

    async def _with_token(self, secret: bytes | None, scope: Scope, receive: Receive, send: Send) -> None:
        """One of the store's, or none."""
        try:
            token = None if secret is None or self._tokens is None else self._tokens.find(secret)
        except StoreUnreachable as exc:
            refused = refusal(503, "StoreUnreachable", str(exc), headers={"Retry-After": str(RETRY_AFTER_S)})
            await refused(scope, receive, send)
            return
        if token is None or self._tokens is None:
            await _not_let_in(scope["path"])(scope, receive, send)
            return
        needed = roles.needed(scope["method"], scope["path"])
        if roles.may(token.role, needed):
            await self._app(scope, receive, _while_live(token, self._tokens, send))
        else:
            await _not_enough(token, needed)(scope, receive, send)


def checked_token(token: str) -> str:
    """A token that can stand in a header and cannot be guessed, or `SettingError`. It is not shown."""
    if len(token) < MIN_TOKEN_CHARS or not (token.isascii() and token.isprintable()) or " " in token:
        raise SettingError(
            f"the API's token has {len(token)} characters; use {MIN_TOKEN_CHARS} or more, of ASCII, without blanks"
        )
    return token


def _while_live(token: TokenRow, tokens: KnownTokens, send: Send) -> Send:
    """An answer that goes on (events) ends with its token: nothing more is told once that is revoked."""
    is_over = False

    async def sending(message: Message) -> None:
        nonlocal is_over
        if is_over:
            return
        if message.get("more_body") and not tokens.is_live(token):
            is_over = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return sending


def _not_let_in(path: str) -> Response:
    challenge = 'Bearer realm="canoa"'
    if path in READABLE_PATHS:
        challenge += ', Basic realm="canoa: any name, the token as password"'
    text = "no token, or a wrong one; send the header `Authorization: Bearer <token>`"
    return refusal(401, "Unauthorized", text, headers={"WWW-Authenticate": challenge})


def _not_enough(token: TokenRow, needed: Role) -> Response:
    text = f"the token {token.name!r} has the role {token.role}, and this needs {needed}; an admin makes tokens"
    return refusal(403, "Forbidden", text)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _secret(authorization: bytes, path: str) -> bytes | None:
    """What the caller shows; None: nothing that counts here."""
    scheme, _, given = authorization.partition(b" ")
    kind = scheme.lower()
    if kind == b"basic" and path in READABLE_PATHS:
        return _password(given).strip()
    return given.strip() if kind == b"bearer" else None


def _password(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
