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
    imported = set(run("import sys; from canoa.cli.program import program; program([]); print(*sys.modules)").split())

    assert "canoa.cli.worker" in imported
    assert imported & ((HEAVY | {"aiohttp", "alembic", "sqlalchemy"}) - {"typer"}) == set()


def test_a_command_starts_without_the_other_ones() -> None:
    imported = set(
        run("import sys; from canoa.cli.program import program; program(['nodes']); print(*sys.modules)").split()
    )

    assert "canoa.cli.nodes" in imported
    assert imported & {"canoa.cli.worker", "canoa.cli.manager", "canoa.cli.site", "canoa.testing"} == set()


def test_importing_takes_no_longer_than_what_it_stands_on() -> None:
    """In processor time, the best of three, beside what it cannot do without: on a slow machine both take longer."""
    code = (
        "import time; began = time.process_time(); import asyncio, msgspec, inspect; below = time.process_time();"
        " import canoa; print(below - began, time.process_time() - below)"
    )
    measured = [tuple(map(float, run(code).split())) for _ in range(3)]

    assert min(own for _, own in measured) < min(below for below, _ in measured)
