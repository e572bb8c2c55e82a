"""OpenTelemetry for `canoa worker` and `canoa up`, set up from the variables that OpenTelemetry itself defines.

A program that sets a tracer provider of its own, or runs under `opentelemetry-instrument`, keeps that one. Sampling,
batches, time limits and the resource follow `OTEL_…` too: the SDK reads them by itself.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.trace import TracerProvider

log = get_logger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
GROUP: Final = "opentelemetry_traces_exporter"

FLUSH_WITHIN_S: Final = 5.0
"""How long the last spans may take to leave: a collector that is away must not hold up the end of a worker."""


@contextmanager
def exporting(app: str) -> Iterator[None]:
    """Spans are exported inside the block, if the environment says where to, and the last of them at its end."""
    names = wanted(os.environ)
    provider = _set_up(app, names) if names else None
    try:
        yield
    finally:
        if provider is not None:
            _flush(provider)


def wanted(environment: Mapping[str, str]) -> list[str]:
    """The exporters to use, by name. An endpoint alone means OTLP; nothing said means none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    has_endpoint = any(environment.get(each) for each in ENDPOINTS)
    named = environment.get(EXPORTERS) or ("otlp" if has_endpoint else "none")
    names = [stripped for each in named.split(",") if (stripped := each.strip())]
    return [_otlp(environment) if each == "otlp" else each for each in names if each != "none"]


def _otlp(environment: Mapping[str, str]) -> str:
    protocol = next((environment[each] for each in PROTOCOLS if environment.get(each)), "http/protobuf")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def _set_up(app: str, names: list[str]) -> TracerProvider | None:
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as exc:
        log.warning("tracing_not_possible", missing=exc.name, remedy="pip install 'canoa[otel]'")
        return None
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # the app's module has set one
    provider = TracerProvider(resource=Resource.create(_resource(app)), shutdown_on_exit=False)
    for exporter in _exporters(names):
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _resource(app: str) -> dict[str, str]:
    """The service is the app, unless the environment names it."""
    is_named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if is_named else {"service.name": app}


def _exporters(names: list[str]) -> Iterator[Any]:
    known = {each.name: each for each in entry_points(group=GROUP)}
    for name in names:
        if name in known:
            yield known[name].load()()
        else:
            log.warning("exporter_not_found", exporter=name, known=sorted(known), remedy=_remedy(name))


def _remedy(name: str) -> str:
    package = {"otlp_proto_http": "'canoa[otel]'", "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc"}.get(
        name
    )
    return f"pip install {package}" if package else f"install the package it comes with, or change {EXPORTERS}"


def _flush(provider: TracerProvider) -> None:
    """In a thread that may be left behind: exporters try again for longer than we can wait."""
    flushing = threading.Thread(target=provider.shutdown, name="otel-flush", daemon=True)
    flushing.start()
    flushing.join(FLUSH_WITHIN_S)
    if flushing.is_alive():
        log.warning("last_spans_not_sent", waited_s=FLUSH_WITHIN_S)
