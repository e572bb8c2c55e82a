"""A `canoa up` in a folder of its own."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from benchmarks import processes
from benchmarks.keep.recorders import COMMAND
from benchmarks.polling import READY_WITHIN_S, polling

if TYPE_CHECKING:
    from collections.abc import Iterator


class Served(NamedTuple):
    port: int
    token: str


@contextmanager
def up(store: Path | None = None) -> Iterator[Served]:
    """Ready to serve. `store`: a SQLite file that exists; otherwise a new one."""
    command = [COMMAND, "up", "benchmarks.keep.small_app:app", "--port", "0"]
    if store is not None:
        command += ["--store", f"sqlite:///{store}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        processes.workers(command, 1, env={}, folder=Path(folder)) as [process],
    ):
        address = Path(folder, ".canoa", "address")
        for _ in polling(READY_WITHIN_S, "canoa up"):
            process.check()
            if address.exists():
                break
        port = urlsplit(address.read_text().strip()).port
        assert port is not None
        yield Served(port, address.with_name("token").read_text().strip())
