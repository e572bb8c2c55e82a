"""A meter that tells what it measures over HTTP, on this machine alone: a motor that lags behind its voltage."""

from __future__ import annotations

import json
import math
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = 128
LAG = 0.6  # radians
MEASURED = {
    "place": "pump 3",
    "volts": [325 * math.sin(2 * math.pi * nth / SAMPLES) for nth in range(SAMPLES)],
    "amps": [14 * math.sin(2 * math.pi * nth / SAMPLES - LAG) for nth in range(SAMPLES)],
}


class _Meter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(MEASURED).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def sensor() -> Iterator[str]:
    """Its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Meter) as server:
        thread = threading.Thread(target=server.serve_forever, name="sensor", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
