"""Errors as answers: which status each class gets, and one body for all of them."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from canoa import errors
from canoa.api.answers import Refusal, refusal
from canoa.api.documents import reference_to
from canoa.wire.codec import TypeMismatch, Unencodable

RETRY_AFTER_S: Final = 1
"""Links come back within a second or so; a caller that is told nothing would ask at once, again and again."""


class TooMany(errors.CanoaError):
    """More of them at once than the API serves. Retrying is safe, once others are gone."""


class TooSlow(errors.CanoaError):
    """The request's body did not arrive in time."""


class WrongContentType(errors.WrongUse):
    """A body that is not JSON by its own word."""


STATUS: Final[dict[type[errors.CanoaError], int]] = {
    errors.UnknownAction: 404,
    errors.UnknownTask: 404,
    errors.UnknownPlan: 404,
    errors.UnknownNode: 404,
    errors.UnknownToken: 404,
    errors.TokenNameTaken: 409,
    errors.NotRouted: 404,
    errors.NotDead: 404,
    errors.QueueMissing: 404,
    errors.NodeIdTaken: 409,
    errors.PayloadTooLarge: 413,
    WrongContentType: 415,
    errors.ArgumentsRefused: 422,
    errors.SettingError: 422,
    errors.EndpointRefused: 422,
    errors.PlanRefused: 422,
    TypeMismatch: 422,
    Unencodable: 406,
    errors.BrokerRefusedLogin: 503,
    errors.BrokerRefusedOperation: 503,
    errors.DeclarationDiffers: 503,
    errors.StoreTaken: 503,
    errors.StoreTooNew: 503,
    errors.WrongUse: 400,
    TooSlow: 408,
    TooMany: 429,
    errors.DeliveryUnknown: 504,
    errors.BrokerUnreachable: 503,
    errors.BrokerRefusedMessage: 503,
    errors.StoreUnreachable: 503,
    errors.NobodyKeeps: 503,
    errors.NobodyManages: 503,
    errors.StoreFull: 507,
    errors.CanoaError: 500,
}

_MEANING: Final = {
    400: "Not JSON, not an action's name, or a Host header that is not ours",
    401: "No token, or a wrong one",
    403: "A token whose role is not enough",
    404: "No such action, task, letter, plan, node or token",
    406: "A result that JSON cannot carry",
    408: "The body came too slowly",
    409: "Another live node has this id, or the name is taken",
    413: "A body over the size limit",
    415: "A body that is not JSON by its own word",
    422: "Sound JSON that does not fit: the fields, an option, the action's parameters",
    429: "Too many at once",
    503: "The broker or the store cannot be reached just now, or no manager runs here; nothing was accepted",
    504: "The link broke before the answer came; retry what has an idempotency key",
    507: "The store has no room; nothing was accepted",
}


def refused(description: str) -> dict[str, Any]:
    """For OpenAPI. By name: given the model, FastAPI would make one of its own for every status of every operation,
    and that took 0.16 s of every start."""
    return {"content": {"application/json": {"schema": {"$ref": reference_to(Refusal)}}}, "description": description}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the refusals of one operation, besides those that all have."""
    return {status: refused(_MEANING[status]) for status in sorted({400, 401, 403, 503, *statuses})}


def status_of(error: errors.CanoaError) -> int:
    """By its class, or the nearest one above it that is listed."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def add_handlers(api: FastAPI) -> None:
    api.add_exception_handler(errors.CanoaError, _on_canoa_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_exception_handler(Exception, _on_bug)


async def _on_canoa_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, errors.CanoaError)
    status = status_of(exc)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503, 507) else None
    return refusal(status, type(exc).__name__, str(exc), headers=headers)


async def _on_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    kind = {404: "UnknownPath", 405: "WrongMethod"}.get(exc.status_code, "WrongUse")
    text = f"{request.method} {request.url.path!r:.200}: {exc.detail}; see /docs"
    headers = {"Allow": _methods_at(request)} if exc.status_code == 405 else exc.headers
    return refusal(exc.status_code, kind, text, headers=headers)


def _methods_at(request: Request) -> str:
    """All of that path: the router names only those of the first route that it finds."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    path = next(route.path for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted(method for route in routes if route.path == path for method in route.methods or ()))


async def _on_bug(_: Request, __: Exception) -> Response:
    """What we did not foresee. It travels on and is logged by the server: whoever asked is not told the details."""
    return refusal(500, "InternalError", "this is a bug of ours; the log of the server has the details")
