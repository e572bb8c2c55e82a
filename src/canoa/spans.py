"""The spans of a task: `call` until its answer, `send` until its confirm, `process` for every attempt; one trace.

Names and attributes follow OpenTelemetry's conventions for messaging
(https://opentelemetry.io/docs/specs/semconv/messaging/). A span's place in its trace travels as `traceparent`, like any
other's. Imported only where OpenTelemetry is used: `telemetry.py` decides that.
"""

from __future__ import annotations

from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import msgspec
from opentelemetry import context as variables
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    TraceState,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from canoa.client.handle import Failed
from canoa.wire import trace
from canoa.wire.trace import TraceContext

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from canoa.broker.port import HeaderValue, Publication
    from canoa.client.handle import Handle
    from canoa.errors import CanoaError
    from canoa.wire.result import Failure
    from canoa.wire.task import Task

RABBITMQ: Final = "rabbitmq"
MEMORY: Final = "canoa.memory"  # the conventions have no word for it

_in_hand: ContextVar[Span | None] = ContextVar("span_in_hand", default=None)
"""The attempt's own span. Not OpenTelemetry's current one: a worker may have been started inside somebody's span."""


class SpannedAttempt:
    """The span of an attempt, current from here to `end`, which puts back what was before. Both in one context."""

    __slots__ = ("_current", "_in_hand", "_span")

    def __init__(self, span: Span, parent: Context) -> None:
        self._span = span
        self._current = variables.attach(set_span_in_context(span, parent))
        self._in_hand = _in_hand.set(span)

    def end(self) -> None:
        _in_hand.reset(self._in_hand)
        variables.detach(self._current)
        self._span.end()


def new_spans(provider: TracerProvider) -> Spans:
    return Spans(provider.get_tracer("canoa", version("canoa")))


class Spans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    # --- The caller's side ------------------------------------------------------------------------

    def begin_send(
        self, publication: Publication, handle: Handle[Any], *, is_awaited: bool, is_memory: bool
    ) -> Publication:
        """The same, carrying a span that ends with its confirm; an awaited one is inside another, until its answer."""
        parent = _ambient()
        shared = {"messaging.system": MEMORY if is_memory else RABBITMQ, "canoa.task_id": handle.id}
        if is_awaited:
            call = self._tracer.start_span(f"call {handle.action}", parent, SpanKind.CLIENT, shared)
            handle.on_ended(lambda ended: _end_call(call, ended))
            parent = set_span_in_context(call, parent)
        message = publication.message
        attributes = {**shared, **_operation("send", publication.key, handle.id, len(message.body))}
        handle.send_span = self._tracer.start_span(f"send {handle.action}", parent, SpanKind.PRODUCER, attributes)
        others = {name: value for name, value in message.headers.items() if name != trace.TRACESTATE}
        headers = {**others, **_headers(handle.send_span)}  # the state of another trace would not fit
        return msgspec.structs.replace(publication, message=msgspec.structs.replace(message, headers=headers))

    def end_send(self, handle: Handle[Any], error: CanoaError | None) -> None:
        span, handle.send_span = handle.send_span, None
        if span is not None:
            if error is not None:
                _fail(span, type(error).__name__, str(error))
            span.end()

    # --- The worker's side ------------------------------------------------------------------------

    def begin_attempt(self, known: Task, queue: str, *, node_id: str, is_memory: bool) -> SpannedAttempt:
        attributes = {
            "messaging.system": MEMORY if is_memory else RABBITMQ,
            "messaging.client.id": node_id,
            "canoa.task_id": known.told_id,
            "canoa.attempt": known.attempt,
            **_operation("process", queue, known.id, len(known.message.body)),
        }
        parent = self._parent_of(known)
        span = self._tracer.start_span(f"process {known.action}", parent, SpanKind.CONSUMER, attributes)
        return SpannedAttempt(span, parent)

    def failed(self, what: Failure, how: str) -> None:
        """The attempt in hand did not succeed. Of a task that was never started there is none."""
        span = _in_hand.get()
        if span is not None:
            span.set_attribute("canoa.outcome", how)
            _fail(span, what.error_type or how, what.message, what.traceback)

    def headers_in_hand(self) -> Mapping[str, HeaderValue] | None:
        span = _in_hand.get()
        return None if span is None else _headers(span)

    def join(self, received: TraceContext | None) -> None:
        variables.attach(Context() if received is None else _context_of(_span_context(received)))

    def _parent_of(self, known: Task) -> Context:
        received = known.trace()
        if received is None:  # an id that is not ours names no trace
            return Context()
        if trace.TRACEPARENT not in known.message.headers and not self._would_sample(received):
            received = msgspec.structs.replace(received, flags=0)
        return _context_of(_span_context(received))

    def _would_sample(self, received: TraceContext) -> bool:
        """A sender without OpenTelemetry sampled nothing: the worker's own sampler decides, as for any first span."""
        sampler: Any = getattr(self._tracer, "sampler", None)
        if sampler is None:
            return True
        decided = sampler.should_sample(Context(), int(received.trace_id, 16), "process", SpanKind.CONSUMER)
        return bool(decided.decision.is_sampled())


# --- Attributes and statuses --------------------------------------------------------------------------


def _operation(name: str, queue: str, task_id: str, body_bytes: int) -> dict[str, str | int]:
    """For `send` and `process`, name and type are the same word. The default exchange leaves the queue as the name."""
    return {
        "messaging.operation.name": name,
        "messaging.operation.type": name,
        "messaging.destination.name": queue,
        "messaging.message.id": task_id,
        "messaging.message.body.size": body_bytes,
    }


def _end_call(span: Span, ended: asyncio.Future[Any]) -> None:
    outcome = ended.result()
    if isinstance(outcome, Failed):
        _fail(span, type(outcome.error).__name__, str(outcome.error))
    span.end()


def _fail(span: Span, error_type: str, message: str, stack: str = "") -> None:
    span.set_status(Status(StatusCode.ERROR, message))
    span.set_attribute("error.type", error_type)
    facts = {"exception.type": error_type, "exception.message": message}
    span.add_event("exception", {**facts, "exception.stacktrace": stack} if stack else facts)


# --- To and from the wire -----------------------------------------------------------------------------


def _ambient() -> Context:
    """The program's own span, or else the trace of the task in hand."""
    current = variables.get_current()
    received = None if get_current_span(current).get_span_context().is_valid else trace.current()
    return current if received is None else _context_of(_span_context(received))


def _context_of(span_context: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(span_context), Context())


def _span_context(received: TraceContext) -> SpanContext:
    return SpanContext(
        trace_id=int(received.trace_id, 16),
        span_id=int(received.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(received.flags),
        trace_state=TraceState.from_header([received.state]) if received.state else None,
    )


def _headers(span: Span) -> dict[str, HeaderValue]:
    found = span.get_span_context()
    state = found.trace_state.to_header() or None
    here = TraceContext(format_trace_id(found.trace_id), format_span_id(found.span_id), found.trace_flags, state)
    return trace.to_headers(here)
