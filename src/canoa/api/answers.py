"""From an endpoint to its response, the short way: views are encoded by msgspec."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from canoa.wire.codec import Unencodable

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class Error:
    """`type`: the error's class, as a Python caller would catch it. `message`: the thing, its value and the remedy."""

    type: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Every answer that is not a success."""

    error: Error


class PlainRoute(APIRoute):
    """FastAPI documents it; the request goes straight to the endpoint, which takes nothing else and gives a response.
    What FastAPI would do in between (its parameters, its encoding) takes as long as all the rest of a request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler


def answer(view: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    try:
        body = _encode(view)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:  # a result only msgpack can carry
        raise Unencodable(f"this cannot be shown as JSON: {exc}; ask for it with the Python client") from exc
    return Response(body, status, headers, "application/json")


def refusal(status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None) -> Response:
    return answer(Refusal(error=Error(type=kind, message=message)), status, headers=headers)
