"""`import canoa` is quick and carries nothing that only some programs need."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"structlog", "rich", "typer", "prometheus_client", "uvloop", "fastapi", "uvicorn", "multiprocessing"}


def run(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout


def test_what_only_some_programs_need_is_not_imported() -> None:
    imported = set(run("import sys, canoa; print(*sys.modules)").split())

    assert imported & HEAVY == set()
    assert (
        imported & {"canoa.worker", "canoa.broker.amqp", "canoa.cli", "canoa.api", "canoa.testing", "canoa.plan"}
        == set()
    )


def test_commands_start_without_what_only_some_of_them_need() -> None:
    imported = set(run("import sys, canoa.cli.program; print(*sys.modules)").split())

    assert imported & ((HEAVY | {"aiohttp", "alembic", "sqlalchemy"}) - {"typer"}) == set()


def test_importing_takes_less_than_150_ms() -> None:
    """In processor time, the best of three: other programs on the machine do not count."""
    code = "import time; began = time.process_time(); import canoa; print(time.process_time() - began)"

    assert min(float(run(code)) for _ in range(3)) < 0.150
