"""How log records look: one JSON object per line, or a readable line where a person watches. On stderr."""

from __future__ import annotations

import enum
import logging
import os
import sys
import time
from typing import Annotated, Any

import msgspec
import typer

_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31"}


class Level(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(enum.StrEnum):
    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


LogLevel = Annotated[Level, typer.Option(case_sensitive=False, help="From which level on to log.")]
LogFormat = Annotated[Format, typer.Option(case_sensitive=False, help="auto: text on a terminal, JSON elsewhere.")]
AsJsonLogs = Annotated[bool, typer.Option("--json", help="The same as --log-format json.")]


def set_up(level: Level, log_format: Format) -> None:
    """Records of other libraries are shown from warnings on."""
    as_text = log_format is Format.TEXT or (log_format is Format.AUTO and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextFormatter() if as_text else _JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("canoa").setLevel(level.upper())


def _facts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    event = getattr(record, "canoa_event", None)
    if event is None:
        return record.getMessage(), {}
    return str(event), dict(getattr(record, "canoa_facts", {}))


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
        trace = self.formatException(record.exc_info) if record.exc_info else facts.get("traceback", "")
        return f"{line}\n{trace.rstrip()}" if trace else line


def _short(value: object) -> str:
    return value if isinstance(value, str) and " " not in value else msgspec.json.encode(value, enc_hook=str).decode()
