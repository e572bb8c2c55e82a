"""How log records look: one JSON object per line, or a readable line where a person watches. On stderr.

Set up by the CLI, and again in every process of a `cpu=True` action, which would be silent otherwise.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from canoa.wire import trace

if TYPE_CHECKING:
    from collections.abc import Callable

_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31"}

in_children: Callable[[], None] | None = None
"""What makes a child process log like this one. None: this one does not log by `show`."""


def show(level: str, *, as_text: bool) -> None:
    """Ours from `level` on; records of other libraries from warnings on."""
    global in_children
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextFormatter() if as_text else _JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("canoa").setLevel(level)
    in_children = partial(show, level, as_text=as_text)


def _facts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    event = getattr(record, "canoa_event", None)
    if event is None:
        return record.getMessage(), _trace_facts()
    return str(event), dict(getattr(record, "canoa_facts", {}))


def _trace_facts() -> dict[str, Any]:
    """For what an action logs by other means than its context's logger: records are formatted where they are made."""
    traced = trace.current()
    return {} if traced is None else {"trace_id": traced.trace_id}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event, facts = _facts(record)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"ts": moment, "level": record.levelname.lower(), "logger": record.name, "event": event, **facts}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event, facts = _facts(record)
        level = record.levelname.lower()
        if not os.environ.get("NO_COLOR") and sys.stderr.isatty():
            level = f"\x1b[{_COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        shown = " ".join(f"{key}={_short(value)}" for key, value in facts.items() if key != "traceback")
        line = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {level} {event} {shown}".rstrip()
        stack = self.formatException(record.exc_info) if record.exc_info else facts.get("traceback", "")
        return f"{line}\n{stack.rstrip()}" if stack else line


def _short(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else msgspec.json.encode(value, enc_hook=str).decode()
