"""W3C trace context: which trace a message belongs to, and which span sent it.

Reads and writes the two header values, `traceparent` and `tracestate` (https://www.w3.org/TR/trace-context-2/).
Spans are made and recorded elsewhere: nothing here depends on a telemetry library.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import HeaderValue

ID_CHARS: Final = 32

_KNOWN_FLAGS = 0x03  # sampled, random; version 00 demands zeros for the others
_MAX_STATE_CHARS = 512
_MAX_STATE_MEMBERS = 32
_LARGE_MEMBER_CHARS = 128

_PARENT = re.compile(r"(?P<version>[0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?P<rest>-.*)?")
_KEY = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"({_KEY})=({_VALUE})")


class TraceContext(msgspec.Struct, frozen=True):
    """A place in a trace: `span_id` is the sender's span, the parent of what the receiver does."""

    trace_id: str
    span_id: str
    flags: int
    state: str | None

    def format(self) -> str:
        """As `traceparent`, in version 00, whichever version it came in."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & _KNOWN_FLAGS:02x}"

    def child(self, span_id: str) -> TraceContext:
        """The same trace, seen from a span of ours."""
        return TraceContext(self.trace_id, span_id, self.flags, self.state)


def parse(traceparent: object, tracestate: object = None) -> TraceContext | None:
    """The context, or None for whatever is no valid `traceparent`: a broken one starts a new trace, it stops no work.

    A later version may add parts at the end; they are ignored. A broken `tracestate` is dropped alone.
    """
    found = _PARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["rest"] is not None):
        return None
    trace_id, span_id, flags = found.group(2, 3, 4)
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16), _parse_state(tracestate))


def _parse_state(tracestate: object) -> str | None:
    if not isinstance(tracestate, str):
        return None
    members = [stripped for each in tracestate.split(",") if (stripped := each.strip(" \t"))]
    parsed = [_MEMBER.fullmatch(each) for each in members]
    keys = {found[1] for found in parsed if found}
    if len(members) > _MAX_STATE_MEMBERS or len(keys) < len(members):  # one is broken, or there twice
        return None
    return ",".join(_shorten(members)) or None


def _shorten(members: list[str]) -> list[str]:
    """Keep what fits, whole members only; large ones go first, then the oldest, which stand last."""

    def is_too_long() -> bool:
        return sum(map(len, members)) + len(members) - 1 > _MAX_STATE_CHARS

    if is_too_long():
        members = [each for each in members if len(each) <= _LARGE_MEMBER_CHARS]
    while is_too_long():
        members.pop()
    return members


TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

received: ContextVar[Mapping[str, object] | None] = ContextVar("received", default=None)
"""The headers of the message in hand. Set by the worker around an action; read only when somebody asks."""


def current() -> TraceContext | None:
    """The context of the work in hand, which whatever it sends joins."""
    headers = received.get()
    return None if headers is None else from_headers(headers)


def to_headers(context: TraceContext) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {TRACEPARENT: context.format()}
    if context.state is not None:
        headers[TRACESTATE] = context.state
    return headers


def from_headers(headers: Mapping[str, object]) -> TraceContext | None:
    return parse(headers.get(TRACEPARENT), headers.get(TRACESTATE))
