"""Telling those who wait what came of it: one who fails over that must not keep the others from hearing theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

log = get_logger(__name__)


def tell(whom: Callable[..., None], *what: Any) -> None:
    try:
        whom(*what)
    except Exception:
        log.exception("answer_not_taken")
