"""What one program knows of routed tasks besides the rows: plans, open tasks, and what it still has to send."""

from __future__ import annotations

from canoa.store.outlines import Outlines
from canoa.store.routed_debts import Debts
from canoa.store.routed_memory import Memory
from canoa.store.routed_unwritten import Unwritten


class Notes:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self.outlines = Outlines()
        self.memory = Memory()
        self.debts = Debts()
        self.unwritten = Unwritten()  # on SQLite: see `sqlite_ahead.py`
        self.data_version: int | None = None  # of SQLite's file, when the memory was last known to be true
        self.locks_left = 0  # groups of moves that lock their rows first, on PostgreSQL: see `postgres_routed.py`
