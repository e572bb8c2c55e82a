"""What Canoa adds to a message, where there are no AMQP headers: HTTP's headers, and the user properties of MQTT 5.

Both carry text alone, so values are spelt like structured fields (RFC 8941): text in quotes, percent-encoded; whole and
broken numbers as they are; truth as ?1 or ?0. Who writes bare words is understood, too. Pure functions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import msgspec

from canoa.broker.port import Message
from canoa.wire import trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from canoa.broker.port import HeaderValue

PREFIX: Final = "canoa-"
OTHERS: Final = frozenset({trace.TRACEPARENT, trace.TRACESTATE})
"""That go as they are: whoever stands in between knows them."""

MESSAGE_ID: Final = "canoa-message-id"
REPLY_TO: Final = "canoa-reply-to"
TYPE: Final = "canoa-type"
_PROPERTIES: Final = {MESSAGE_ID: "message_id", REPLY_TO: "reply_to", TYPE: "type"}
CONTENT_TYPE: Final = "content-type"
CONTENT_ENCODING: Final = "content-encoding"

MAX_FIELDS: Final = 100
MAX_FIELD_CHARS: Final = 60_000
"""Of one, as it travels: MQTT has room for 65,535. A longer one, such as a traceback of many signs, stays away."""
_INTEGER: Final = re.compile(r"-?\d{1,18}")
_DECIMAL: Final = re.compile(r"-?\d{1,15}\.\d{1,6}")
_SAFE: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"


def spelt(message: Message) -> list[tuple[str, str]]:
    """Its headers and properties as fields. What has no text of its own (tables, bytes) is left out."""
    fields = [(name, _spelt(name, value)) for name, value in message.headers.items() if _travels(name)]
    fields += [(name, _text(value)) for name, of in _PROPERTIES.items() if (value := getattr(message, of)) is not None]
    return [(name, value) for name, value in fields if value is not None and len(value) <= MAX_FIELD_CHARS]


def http_headers(message: Message) -> dict[str, str]:
    headers = dict(spelt(message))
    headers[CONTENT_TYPE] = message.content_type or "application/json"
    if message.content_encoding:
        headers[CONTENT_ENCODING] = message.content_encoding
    return headers


def read(body: bytes, fields: Iterable[tuple[str, str]]) -> Message:
    """A message from its body and its fields, whose names come in any case. What is not Canoa's is left out."""
    given = {name.lower(): value for name, value in list(fields)[:MAX_FIELDS]}
    headers = {name: _read(name, value) for name, value in given.items() if _travels(name) and name not in _PROPERTIES}
    told = {of: str(_value(given[name]))[:255] for name, of in _PROPERTIES.items() if name in given}
    content_type = given.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()[:255]
    encoding = given.get(CONTENT_ENCODING, "").strip().lower()[:255]
    return Message(
        body=body,
        headers=headers,
        content_type=content_type or None,
        content_encoding=encoding or None,
        message_id=told.get("message_id"),
        reply_to=told.get("reply_to"),
        type=told.get("type"),
    )


def unspelt(message: Message) -> Message:
    """What a client of MQTT 5 published through a broker that makes headers of its user properties: texts, as spelt."""
    headers: dict[str, HeaderValue] = {}
    for name, value in message.headers.items():
        headers[name] = _read(name, value) if isinstance(value, str) and _travels(name) else value
    encoding = headers.pop(CONTENT_ENCODING, None)
    if isinstance(encoding, str) and message.content_encoding is None:
        return msgspec.structs.replace(message, headers=headers, content_encoding=encoding)
    return msgspec.structs.replace(message, headers=headers)


def _travels(name: str) -> bool:
    return name.startswith(PREFIX) or name in OTHERS


def _spelt(name: str, value: HeaderValue) -> str | None:
    if name in OTHERS:
        return value if isinstance(value, str) and value.isascii() and value.isprintable() else None
    match value:
        case bool():
            return "?1" if value else "?0"
        case int():
            return str(value)
        case float():
            return f"{value:.6f}"
        case str():
            return _text(value)
        case _:
            return None


def _text(value: str) -> str:
    return f'"{quote(value, safe=_SAFE, errors="replace")}"'


def _read(name: str, value: str) -> HeaderValue:
    return value if name in OTHERS else _value(value)


def _value(value: str) -> HeaderValue:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return unquote(value[1:-1], errors="replace")
    if value in ("?1", "true"):
        return True
    if value in ("?0", "false"):
        return False
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else value
