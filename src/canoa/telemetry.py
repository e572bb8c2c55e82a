"""The switch for OpenTelemetry: off until the program has set a tracer provider, and next to free while it is off.

The spans themselves are in `spans.py`, which is imported when the switch goes on. With it off, traces are carried on
all the same: `wire/trace.py` reads and writes the headers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from canoa.wire import trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from canoa.broker.port import HeaderValue
    from canoa.client.handle import Handle
    from canoa.errors import CanoaError
    from canoa.spans import SpannedAttempt, Spans
    from canoa.wire.result import Failure
    from canoa.wire.task import Task

spans: Spans | None = None
"""What hot paths look at, and all that they pay."""


def look() -> None:
    """Switch on where the program uses OpenTelemetry by now. Done whenever a session connects and a worker starts."""
    global spans
    api = sys.modules.get("opentelemetry.trace")
    if spans is not None or api is None:
        return
    provider = api.get_tracer_provider()
    if not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):  # somebody set a real one
        from canoa.spans import new_spans

        spans = new_spans(provider)


def sent(handle: Handle[Any], error: CanoaError | None) -> None:
    """The broker or the store has the task, or will not have it."""
    if handle.send_span is not None and spans is not None:
        spans.end_send(handle, error)


def begin_attempt(known: Task, queue: str, *, node_id: str, is_memory: bool) -> SpannedAttempt | None:
    """From now on its span is what the action's own spans and submits are children of. Whoever began it ends it."""
    return None if spans is None else spans.begin_attempt(known, queue, node_id=node_id, is_memory=is_memory)


def failed(what: Failure, how: str) -> None:
    """The attempt in hand did not succeed."""
    if spans is not None:
        spans.failed(what, how)


def trace_headers(known: Task) -> Mapping[str, HeaderValue]:
    """Where the work on a task stands in its trace: in the span of its attempt, or else where its sender stood."""
    in_hand = None if spans is None else spans.headers_in_hand()
    return known.trace_headers() if in_hand is None else in_hand


def facts(known: Task) -> dict[str, str]:
    """What every log line about a task says."""
    told = {"task_id": known.told_id, "action": known.action}
    if known.told_id != known.id:
        told["request_id"] = known.id
    traced = trace.from_headers(trace_headers(known))
    if traced is not None:
        told["trace_id"] = traced.trace_id
    if (span_id := span_id_in_hand()) is not None:
        told["span_id"] = span_id
    return told


def span_id_in_hand() -> str | None:
    traced = None if spans is None else trace.from_headers(spans.headers_in_hand() or {})
    return None if traced is None else traced.span_id


def join(headers: Mapping[str, object]) -> None:
    """For a process of a `cpu=True` action: spans that the action makes join the trace of its task."""
    look()
    if spans is not None:
        spans.join(trace.from_headers(headers))
