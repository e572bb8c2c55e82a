"""An HTTP server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Asked(NamedTuple):
    method: str
    path: str
    authorization: str
    body: Any
    connection: int


class ApiDouble:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[tuple[int, bytes]] = []
        self.closes_after_answer = False
        self.hangs_up_before_answer = False
        self.url = ""

    def will_answer(self, body: Any, status: int = 200) -> None:
        self.answers.append((status, body if isinstance(body, bytes) else json.dumps(body).encode()))


@contextmanager
def api_double() -> Iterator[ApiDouble]:
    double = ApiDouble()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            authorization = self.headers.get("Authorization", "")
            double.asked.append(Asked(self.command, self.path, authorization, body, self.client_address[1]))
            if double.hangs_up_before_answer:
                double.hangs_up_before_answer = False
                self.close_connection = True
                return
            status, answer = double.answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            self.close_connection = double.closes_after_answer  # without having said so

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
