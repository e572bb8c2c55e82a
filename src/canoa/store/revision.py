"""Which schema a store has, and whether we know it. How it gets the one we want is in `migrating.py`."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from canoa.errors import StoreTooNew

HEAD: Final = "0005"
"""The last revision in `migrations/versions/`: the tables of `schema.py`."""

TABLE: Final = "canoa_schema"
"""Says which revision a store has. A name of our own: another program in the database may use Alembic too."""

SELECT: Final = f"SELECT version_num FROM {TABLE}"
SELECT_TABLE_ON_SQLITE: Final = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{TABLE}'"
SELECT_TABLE_ON_POSTGRES: Final = f"SELECT to_regclass('{TABLE}') IS NOT NULL"


def is_current(revision: str | None, *, place: str) -> bool:
    """Whether nothing needs to be done; None is an empty store. Raises `StoreTooNew`, naming the store's `place`."""
    # Revisions are numbers of four digits, so the later one is the greater one.
    if revision is not None and revision > HEAD:
        raise StoreTooNew(
            f"the store {place} has schema {revision}, and Canoa {metadata.version('canoa')} knows only {HEAD}; "
            "upgrade with: pip install --upgrade 'canoa[server]', or name another store in CANOA_STORE"
        )
    return revision == HEAD
