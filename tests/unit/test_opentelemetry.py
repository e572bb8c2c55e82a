"""OpenTelemetry is used where the program uses it, is never imported otherwise, and follows its own variables."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from canoa.cli import tracing

RUN = [sys.executable, "-c"]


def told(code: str) -> str:
    ended = subprocess.run([*RUN, code], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout.strip()


CALL = """
import asyncio, sys
from canoa import Canoa, telemetry

app = Canoa("shop", broker="memory://")

@app.action
async def quick() -> None: ...

async def main():
    async with app, app.worker():
        await quick.call()

asyncio.run(main())
"""


def test_a_program_without_it_does_not_import_it() -> None:
    assert told(CALL + "print(telemetry.spans, [each for each in sys.modules if 'opentelemetry' in each])") == "None []"


def test_a_program_that_only_has_the_api_makes_no_spans() -> None:
    assert told("import opentelemetry.trace\n" + CALL + "print(telemetry.spans)") == "None"


def test_a_program_that_sets_a_provider_gets_spans() -> None:
    provider = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""

    names = told(provider + CALL + "print(*sorted(span.name for span in exporter.get_finished_spans()), sep=',')")

    assert names == "call shop.quick,process shop.quick,send shop.quick"


@pytest.mark.parametrize(
    ("environment", "exporters"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://here:4318"}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://here:4318/v1/traces"}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://here"}, []),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_the_environment_names_the_exporters(environment: dict[str, str], exporters: list[str]) -> None:
    assert tracing.wanted(environment) == exporters


def test_a_missing_extra_is_a_warning_that_names_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)

    with caplog.at_level(logging.WARNING, "canoa"), tracing.exporting("shop"):
        pass

    assert "tracing_not_possible" in caplog.text
    assert "pip install 'canoa[otel]'" in caplog.text
