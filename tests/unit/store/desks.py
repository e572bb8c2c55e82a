"""Moves through a SQLite store that decides first and writes soon."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.contract.store.routed_words import ONE

from canoa.store import sqlite_pace, sqlite_slips
from canoa.store.routed_port import DEFAULT_SETTINGS
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from canoa.store.routed_port import Move, Moved, Owed

WITHIN_S = 10.0


class Desk:
    """Moves through a store, and the keys of what left before it was written, and of what was owed once it was
    committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self.route = ONE
        self.settings = DEFAULT_SETTINGS
        self.left: list[str] = []
        self.owed: list[str] = []

    def _on_ahead(self, attempts: Sequence[Owed]) -> None:
        self.left += [each.key for each in attempts]

    def _on_committed(self, answers: Sequence[Moved]) -> None:
        self.owed += [each.key for moved in answers for each in moved.owed]

    async def moved(self, *moves: Move, paid: Sequence[str] = ()) -> list[Moved]:
        told: asyncio.Future[list[Moved] | Exception] = asyncio.get_running_loop().create_future()
        self.store.start_advance(
            moves,
            self.route,
            paid=paid,
            settings=self.settings,
            ahead=self._on_ahead,
            on_committed=self._on_committed,
            on_end=told.set_result,
            is_hurried=True,
        )
        async with asyncio.timeout(WITHIN_S):
            answers = await told
        if isinstance(answers, Exception):
            raise answers
        return answers

    def begun(self, *moves: Move, paid: Sequence[str] = ()) -> asyncio.Task[list[Moved]]:
        return asyncio.get_running_loop().create_task(self.moved(*moves, paid=paid))

    async def waiting(self, *moves: Move, paid: Sequence[str] = ()) -> asyncio.Task[list[Moved]]:
        """They are decided, and written with what comes next, however long that takes."""
        with pytest.MonkeyPatch.context() as patient:
            patient.setattr(sqlite_pace, "LINGER_S", WITHIN_S)
            begun = self.begun(*moves, paid=paid)
            await turns()
        return begun

    def rows(self, select: str) -> list[tuple[object, ...]]:
        return rows_in(self.path, select)

    def count(self, table: str) -> int:
        return len(self.rows(f"SELECT 1 FROM {table}"))

    def forget(self) -> None:
        """All that it remembers of tasks."""
        self.store._notes.memory.clear()


def rows_in(path: Path, select: str) -> list[tuple[object, ...]]:
    """As they are on disk, for whoever opens the file next: with what is on slips. Nothing is changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if sqlite_slips.are_there(other):
            other.execute("BEGIN IMMEDIATE")
            sqlite_slips.copy(other)
        return other.execute(select).fetchall()


async def turns() -> None:
    """Of the loop: what was started is decided."""
    for _ in range(5):
        await asyncio.sleep(0)
