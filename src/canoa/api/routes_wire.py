"""The published wire over HTTP: nodes register, and answer. What they are sent goes the other way, to their address."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from canoa.api import asked
from canoa.api.answers import answer
from canoa.api.documents import NO_TOKEN
from canoa.api.errors import documented
from canoa.broker.port import Message
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.routed_views import NodeAccepted, ResultTaken
from canoa.wire import fields, sapparchi

REGISTER: Final = "/sapparchi/nodes/register"
RESULTS: Final = "/sapparchi/results"

_REGISTRATION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "nodeId": {"type": "string", "maxLength": sapparchi.MAX_NODE_ID_CHARS, "description": "Its own, and lasting."},
        "endpoint": {"type": "string", "description": "Where it takes messages: `POST <endpoint>/sapparchi/messages`."},
        "layer": {"type": "string", "enum": ["EDGE", "FOG", "CLOUD"]},
        "type": {"type": "string", "maxLength": 512},
        "actions": {"type": "array", "items": {"type": "string"}, "maxItems": sapparchi.MAX_ACTIONS},
        "forceRegister": {"type": "boolean"},
    },
    "required": ["nodeId", "endpoint", "layer", "actions"],
}
_RESULT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "actionTo": {"type": "string", "description": "As it came."},
        "requestID": {"type": "string", "description": "As it came."},
        "messageData": {"type": "string", "description": "What came out, as JSON in a text."},
    },
    "required": ["actionTo", "requestID", "messageData"],
}
_REGISTERED: Final = {
    "nodeId": "gw-7",
    "endpoint": "http://127.0.0.1:8430",
    "layer": "FOG",
    "type": "bare",
    "actions": ["urn:sapparchi:Action:shop.resize"],
    "forceRegister": False,
}
_ANSWERED: Final = {
    "actionTo": "urn:sapparchi:Action:shop.resize",
    "requestID": "0192f0c1a7b27c3e9d5e4f60718293a4.0.1.1",
    "messageData": '"a.png is 100 wide"',
}


def _takes(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema, "examples": {"a node": {"value": example}}}}
    return {**NO_TOKEN, "requestBody": {"required": True, "content": content}}


def add_routes(api: FastAPI, routed: RoutedDesk, *, limit_bytes: int) -> None:
    @api.post(
        REGISTER,
        tags=["wire"],
        operation_id="register_node",
        summary="A node says that it is there, and what it offers",
        response_model=NodeAccepted,
        response_description="Welcome; `actions` are those that were accepted",
        responses=documented(408, 409, 413, 422),
        openapi_extra=_takes(_REGISTRATION, _REGISTERED),
    )
    async def register_node(request: Request) -> Response:
        """As published. Again about every 50 s, as a sign of life. Without actions: it leaves."""
        message = await _message(request, sapparchi.MAX_REGISTRATION_BYTES)
        accepted = await routed.register_node(message)
        return answer(NodeAccepted(token=accepted.token, nodeId=accepted.node_id, actions=accepted.actions))

    @api.post(
        RESULTS,
        tags=["wire"],
        operation_id="take_result",
        summary="A node answers: what came of a message",
        response_model=ResultTaken,
        response_description="It is stored. Late, double and foreign answers change nothing, and are taken as well",
        responses=documented(408, 413),
        openapi_extra=_takes(_RESULT, _ANSWERED),
    )
    async def take_result(request: Request) -> Response:
        message = await _message(request, 2 * limit_bytes + asked.MARGIN_BYTES)  # quoted, data may be twice as long
        await routed.take_result(message)
        return answer(ResultTaken(taken=True))


async def _message(request: Request, limit_bytes: int) -> Message:
    body = await asked.bytes_of(request, limit_bytes)
    return fields.read(body, request.headers.items())
