"""Structured loggers that end in the standard library's logging, whoever configures it.

Used as a library Canoa stays silent until logging is set up, and never writes to stdout. The CLI sets up how records
look (`cli/logs.py`); any other handler sees the phrase with its facts behind it, and the facts as `record.canoa_facts`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

logging.getLogger("canoa").addHandler(logging.NullHandler())


def get_logger(name: str) -> Any:
    """`log.info("task_finished", seconds=0.2)`: a fixed phrase, facts as keys."""
    return structlog.wrap_logger(
        logging.getLogger(name),
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
    return {"msg": text.replace("%", "%%"), "extra": extra, "exc_info": exc_info}
