"""From a URL to a store."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canoa.errors import SettingError
from canoa.settings import without_password

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.store.routed_port import FullStore

_FORMS: Final = "sqlite:///relative/path, sqlite:////absolute/path or postgresql://user:password@host:port/database"


def new_store(url: str) -> FullStore:
    """Not yet open. Raises `SettingError` for a URL that names no store, and where what it needs is not installed."""
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator and len(rest) > 1 and rest.startswith("/"):
        return _part("sqlite", "SqliteStore")(Path(rest[1:]))
    if scheme in ("postgresql", "postgres") and rest:
        return _part("postgres", "PostgresStore")(url)
    raise SettingError(f"the store {without_password(url)!r} cannot be used; name it as {_FORMS}")


def _part(module: str, name: str) -> Callable[[Any], FullStore]:
    """Imported when used: a gateway has no database driver."""
    try:
        adapter: Callable[[Any], FullStore] = getattr(importlib.import_module(f"canoa.store.{module}"), name)
        return adapter
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("canoa"):
            raise
        raise SettingError(f"a store needs {exc.name}; install it with: pip install 'canoa[server]'") from exc
