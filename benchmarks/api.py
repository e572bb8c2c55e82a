"""Calls through the HTTP API of `canoa up`, everything in one process: `python -m benchmarks.api`.

A call is two requests: submit, then the result, waiting for it. The caller is a process of its own, with as many
connections kept alive as there are calls at once. Prints a table and writes `build/bench/api.json`; figures are medians
of the rounds, after one that warms up.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "build" / "bench" / "api.json"

CALLS = 5000
AT_ONCE = 50
ROUNDS = 3
WANTED_CALLS_PER_S = 500

APP = """
from canoa import Canoa

app = Canoa("bench")


@app.action()
async def resize(path: str, width: int = 100) -> str:
    return f"{path}-{width}"
"""
BODY = b'{"action": "bench.resize", "arguments": {"path": "a.png", "width": 80}}'


# --- The caller -----------------------------------------------------------------------------------------------


class Caller:
    """HTTP/1.1 on a bare connection: a client library would cost more than the server."""

    def __init__(self, port: int, token: str) -> None:
        self.took_s: list[float] = []
        self._port = port
        self._headers = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    async def call(self, count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in range(count):
            started_s = time.perf_counter()
            await self._call_once(reader, writer)
            self.took_s.append(time.perf_counter() - started_s)
        writer.close()

    async def _call_once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head("POST", "/api/v1/tasks", len(BODY)) + BODY)
        submitted = json.loads(await _answered(reader, b"201"))
        writer.write(self._head("GET", f"/api/v1/tasks/{submitted['id']}/result?wait=30", 0))
        await _answered(reader, b"200")

    def _head(self, method: str, path: str, size: int) -> bytes:
        return f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {size}\r\n\r\n".encode()


async def _answered(reader: asyncio.StreamReader, status: bytes) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(size)
    if head.split(b" ", 2)[1] != status:
        raise AssertionError(f"{head!r} {body!r}")
    return body


async def measured(port: int, token: str) -> dict[str, float]:
    caller = Caller(port, token)
    started_s = time.perf_counter()
    await asyncio.gather(*(caller.call(CALLS // AT_ONCE) for _ in range(AT_ONCE)))
    took_s = time.perf_counter() - started_s
    percents = statistics.quantiles(caller.took_s, n=100)
    return {"rate": len(caller.took_s) / took_s, "p50": percents[49] * 1000, "p99": percents[98] * 1000}


# --- The server -----------------------------------------------------------------------------------------------


@contextmanager
def up() -> Iterator[tuple[int, str]]:
    """Port and token of a `canoa up` in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_app.py").write_text(APP)
        command = [sys.executable, "-c", "from canoa.cli import main; main()", "up", "bench_app:app", "--port", "0"]
        process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            said = ""
            while "Ctrl-C" not in said:
                line = process.stderr.readline()
                assert line, f"`canoa up` ended: {said}"
                said += line
            port = re.search(r"http://\S+?:(\d+)", said)
            assert port is not None, said
            yield int(port[1]), Path(folder, ".canoa", "token").read_text().strip()
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    with up() as (port, token):
        rounds = [turn(port, token) for _ in range(ROUNDS + 1)][1:]
    medians = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
    rows = [
        row("http_calls_50", medians["rate"], WANTED_CALLS_PER_S, "calls/s"),
        row("http_call_50_p50", medians["p50"], None, "ms"),
        row("http_call_50_p99", medians["p99"], None, "ms"),
    ]
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(rows, indent=2) + "\n")
    for each in rows:
        bound = "" if each["ratio"] is None else f"  wanted {each['peer_value']}, ratio {each['ratio']}"
        print(f"{each['metric']:<20}{each['ours']:>10.1f}  {each['unit']}{bound}")


def turn(port: int, token: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.api", str(port), token]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def row(metric: str, ours: float, bound: float | None, unit: str) -> dict[str, Any]:
    return {
        "metric": metric,
        "ours": round(ours, 1),
        "peer": None if bound is None else "bound",
        "peer_value": bound,
        "ratio": None if bound is None else round(ours / bound, 2),
        "unit": unit,
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvloop

        print(json.dumps(uvloop.run(measured(int(sys.argv[1]), sys.argv[2]))))
    else:
        main()
