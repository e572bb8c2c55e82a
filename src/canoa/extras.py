"""Optional parts are imported when they are used; one that is missing is an error that says how to install it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Imports inside that may be missing say what to install."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise SettingError(f"`{what}` needs {exc.name}; install it with: pip install 'canoa[{extra}]'") from exc
