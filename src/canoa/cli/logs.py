"""Which log records are shown, and in which form: the options of the commands that go on. The lines are made in
`canoa/log_lines.py`."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer

from canoa import log_lines


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
    as_text = log_format is Format.TEXT or (log_format is Format.AUTO and sys.stderr.isatty())
    log_lines.show(level.upper(), as_text=as_text)
