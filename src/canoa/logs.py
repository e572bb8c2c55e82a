"""Structured loggers that end in the standard library's logging, whoever configures it.

Used as a library Canoa stays silent until logging is set up, and never writes to stdout. How the CLI makes records
look is in `log_lines.py`; other handlers see the phrase with its facts behind it, and these as `record.canoa_facts`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

logging.getLogger("canoa").addHandler(logging.NullHandler())

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}


def get_logger(name: str) -> Any:
    """`log.info("task_finished", seconds=0.2)`: a fixed phrase, facts as keys."""
    return _Logger(name, {})


class _Logger:
    """A structlog logger from the first record on that somebody wants to see.

    Not before: structlog looks for what could colour a terminal, and takes twice as long to import as all of Canoa.
    """

    __slots__ = ("_facts", "_real", "_standard")

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self._standard = logging.getLogger(name)
        self._facts = facts
        self._real: Any = None

    def bind(self, **facts: Any) -> _Logger:
        return _Logger(self._standard.name, {**self._facts, **facts})

    def __getattr__(self, method: str) -> Any:
        level = _LEVELS.get(method)
        if level is not None and not self._standard.isEnabledFor(level):
            return _say_nothing
        if self._real is None:
            self._real = _wrapped(self._standard).bind(**self._facts)
        return getattr(self._real, method)


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _wrapped(standard: logging.Logger) -> Any:
    import structlog

    return structlog.wrap_logger(
        standard,
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    )


def _to_record(_logger: WrappedLogger, _method: str, facts: EventDict) -> EventDict:
    event = facts.pop("event")
    exc_info = facts.pop("exc_info", None)
    text = " ".join([str(event), *(f"{key}={value!r}" for key, value in facts.items())])
    extra = {"canoa_event": event, "canoa_facts": facts}
    return {"msg": text, "extra": extra, "exc_info": exc_info}
