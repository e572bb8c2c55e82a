"""A database of its own for every round: nobody finds what another one left."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.keep.plan import POSTGRES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.testing.postgres import PostgresNode


@dataclass(frozen=True)
class Stores:
    """`server`: where databases are made; None where nobody wants one."""

    server: PostgresNode | None

    @contextmanager
    def empty(self, kind: str) -> Iterator[str]:
        """The URL of an empty one; it is gone afterwards."""
        with self._on_server() if kind == POSTGRES else _in_file() as url:
            yield url

    @contextmanager
    def _on_server(self) -> Iterator[str]:
        assert self.server is not None
        name = self.server.add_database()
        try:
            yield self.server.url(name)
        finally:
            self.server.drop_database(name)


@contextmanager
def _in_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{Path(folder, 'canoa.db')}"
