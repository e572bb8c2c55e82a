"""Golden messages: properties and headers as JSON, the body beside them as it travels (text, or base64)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec

from canoa.broker.port import Message

GOLDEN = Path(__file__).parents[2] / "golden" / "messages"


def golden(name: str) -> Message:
    """A message of an earlier version, or of another program."""
    fields: dict[str, Any] = msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes())
    body = fields.pop("body_base64", None)
    fields["body"] = base64.b64decode(body) if body is not None else fields.pop("body").encode()
    return Message(**fields)
