"""A worker exports its spans where OpenTelemetry's own variables say, and its log lines carry their ids."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.shell import Shell

FLUSHED_WITHIN_S = 12.0


class Collector:
    """What a collector of OpenTelemetry was told, over HTTP."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Any] = []

    def spans(self) -> dict[str, Any]:
        scopes = [scope for request in self.requests for each in request.resource_spans for scope in each.scope_spans]
        return {span.name: span for scope in scopes for span in scope.spans}

    def services(self) -> set[str]:
        resources = [each.resource for request in self.requests for each in request.resource_spans]
        return {fact.value.string_value for each in resources for fact in each.attributes if fact.key == "service.name"}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server, ThreadPoolExecutor(1) as thread:
        collector.url = f"http://{LOOPBACK}:{server.server_port}"
        thread.submit(server.serve_forever)
        try:
            yield collector
        finally:
            server.shutdown()


def test_spans_reach_the_collector_before_the_worker_ends(online: Shell) -> None:
    with collecting() as collector:
        worker = online.start_worker("--node-id", "depot-1", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        called = online.canoa("call", "depot.echo", '{"text": "hello"}')
        worker.send(signal.SIGTERM)

        assert (called.stdout, worker.wait()) == ('"hello"\n', 0)
        span = collector.spans()["process depot.echo"]
        facts = {each.key: each.value for each in span.attributes}
        assert collector.services() == {"depot"}
        assert span.trace_id.hex() == facts["canoa.task_id"].string_value
        assert facts["messaging.client.id"].string_value == "depot-1"


def test_a_collector_that_is_away_does_not_hold_up_the_end(online: Shell) -> None:
    worker = online.start_worker(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{LOOPBACK}:{free_port()}")
    assert online.canoa("call", "depot.echo", '{"text": "hello"}').stdout == '"hello"\n'

    started_s = time.monotonic()
    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert time.monotonic() - started_s < FLUSHED_WITHIN_S


def test_an_exporter_that_is_not_there_is_a_warning_that_names_the_remedy(online: Shell) -> None:
    worker = online.start_worker(OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")

    (warning,) = [each for each in worker.events() if each["level"] == "warning"]
    assert warning["event"] == "exporter_not_found"
    assert warning["remedy"] == "pip install opentelemetry-exporter-otlp-proto-grpc"


@pytest.mark.parametrize("endpoint", [False, True])
def test_a_failed_task_is_logged_with_its_trace(online: Shell, endpoint: bool) -> None:
    with collecting() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if endpoint else {}
        worker = online.start_worker(**variables)
        online.canoa("call", "depot.fail", '{"reason": "broken"}')
        worker.wait_logged("task_failed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

        (failed,) = [each for each in worker.events() if each["event"] == "task_failed"]
        assert failed["trace_id"] == failed["task_id"]
        if endpoint:
            assert failed["span_id"] == collector.spans()["process depot.fail"].span_id.hex()
        else:
            assert "span_id" not in failed


def test_a_process_of_its_own_logs_as_its_worker_does(online: Shell) -> None:
    worker = online.start_worker("--log-level", "info", "--log-format", "json")

    assert online.canoa("call", "depot.count", '{"text": "hello"}').stdout == "5\n"
    worker.wait_logged("by other means")

    told = {each["event"]: each for each in worker.events()}
    assert (told["counted"]["letters"], told["counted"]["logger"]) == (5, "canoa.action")
    assert told["counted"]["trace_id"] == told["counted"]["task_id"] == told["by other means"]["trace_id"]
    assert "counting" not in told  # below the worker's level
