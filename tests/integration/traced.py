"""What was exported while OpenTelemetry was in use, in the words of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id
from tests.integration.pool.pool import until

from canoa import telemetry
from canoa.spans import new_spans

if TYPE_CHECKING:
    import pytest
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Tracer


class Traced:
    """What was exported, and a tracer for the program's own spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("test")

    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        """The only span of that name, once it has ended."""
        await until(lambda: bool(self.named(name)))
        (span,) = self.named(name)
        return span


def used(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> Traced:
    monkeypatch.setattr(telemetry, "spans", new_spans(provider))
    return Traced(provider)


def trace_id(span: ReadableSpan) -> str:
    return format_trace_id(span.context.trace_id)


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.parent is not None
    return (child.parent.trace_id, child.parent.span_id) == (parent.context.trace_id, parent.context.span_id)
