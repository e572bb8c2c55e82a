"""Bodies that only claim to be bundles: whoever reads bundles refuses each of them, as a whole."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from canoa.broker.port import Message
from canoa.wire import bundle


def _packed(*parts: Any) -> bytes:
    return msgspec.msgpack.encode(parts)


BODIES: Final = {
    "empty": b"",
    "garbage": b"\xff" * 100,
    "deep": b"\x91" * 100_000,
    "many": _packed(*[Message(body=b"{}", message_id="x")] * (bundle.MAX_PARTS + 1)),
    "large": _packed(Message(body=b"x" * bundle.MAX_BYTES, message_id="x")),
    "nested": _packed(Message(body=_packed(), content_type=bundle.CONTENT_TYPE)),
    "types": _packed({"body": 7}),
}
