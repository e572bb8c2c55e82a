"""The file of a SQLite store that has just been made. Making its tables takes 12 ms of CPU time, copying them none, and
hundreds of tests begin with it; those about opening a store make their own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from canoa.store import sqlite_link, sqlite_schema


def put_empty_store(path: Path) -> None:
    path.write_bytes(_content())


@cache
def _content() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        connection = sqlite_link.connect(path)
        try:
            sqlite_schema.bring_up_to_date(connection, path)
        finally:
            connection.close()
        return path.read_bytes()
