"""What commands print: data on stdout, messages on stderr, and how they end.

Exit codes: 0 done, 1 it went wrong, 2 wrong use (the same command will fail again), 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
import typer

from canoa.errors import CanoaError, TaskEnded, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterator

WENT_WRONG: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 130

GAP: Final = 3  # between the columns of a table
NARROWEST: Final = 30  # to which a column may be wrapped, unless more is known of it
SHORT: Final = 80
UNBOUNDED: Final = 10_000


def data(value: Any) -> None:
    """One JSON document on stdout."""
    line(msgspec.json.encode(value).decode())


def line(text: str) -> None:
    """One line of data. At once, since whoever reads it through a pipe may wait for it."""
    print(text, flush=True)


def say(text: str = "") -> None:
    print(text, file=sys.stderr, flush=True)


def fail(text: str, code: int) -> NoReturn:
    say(f"{paint('error:', '31')} {text}")
    raise typer.Exit(code)


def program() -> str:
    """What to type in the current folder to call this very program: `canoa`, or a path where that is not on PATH."""
    called = Path(sys.argv[0])
    if called.name != "canoa" or not called.is_file():
        return "canoa"
    found = shutil.which("canoa")
    if found and Path(found).samefile(called):
        return "canoa"
    here, path = Path.cwd(), called.absolute()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def paint(text: str, code: str) -> str:
    """In colour where a person looks at it and did not ask for none (`NO_COLOR`)."""
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else text


@contextmanager
def errors_explained(*, as_json: bool = False) -> Iterator[None]:
    """Canoa's own errors become one line and an exit code; anything else is a bug and keeps its traceback.

    `as_json`: whoever asked for JSON on stdout gets the error there, too.
    """
    try:
        yield
    except CanoaError as exc:
        if as_json:
            data({"error": {"type": type(exc).__name__, "message": str(exc)}})
        is_wrong_use = isinstance(exc, WrongUse) and not isinstance(exc, TaskEnded)
        fail(str(exc), WRONG_USE if is_wrong_use else WENT_WRONG)


@contextmanager
def interrupts_told(text: str) -> Iterator[None]:
    """Ctrl-C in the block: what becomes of what was begun, and the exit code that shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: {text}")
        raise typer.Exit(INTERRUPTED) from None


def table(columns: list[str], rows: list[list[str]], *, free: str = "", narrowest: int = NARROWEST) -> None:
    """For people: on stdout, aligned, nothing to parse around. Only the column `free` is wrapped, on a terminal that is
    too narrow, and to `narrowest` at most: the others hold what people copy."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    needed = -GAP  # behind the last one is none
    for index, column in enumerate(columns):
        width = max(len(cell) for cell in [column, *(row[index] for row in rows)])
        least = min(width, narrowest) if column == free else width
        needed += least + GAP
        drawn.add_column(column, overflow="fold", no_wrap=column != free, min_width=least)
    for row in rows:
        drawn.add_row(*row)
    console = Console(file=sys.stdout, highlight=False, markup=False)
    console.width = max(console.width, needed) if sys.stdout.isatty() else UNBOUNDED
    console.print(drawn)


def has_room(columns: list[str], rows: list[list[str]], *, free: str, narrowest: int) -> bool:
    """Whether such a table fits: into the terminal, or anyhow where there is none."""
    if not sys.stdout.isatty():
        return True
    widths = {name: max(len(cell) for cell in cells) for name, *cells in zip(columns, columns, *rows, strict=True)}
    widths[free] = min(widths[free], narrowest)
    return sum(widths.values()) + GAP * (len(widths) - 1) <= shutil.get_terminal_size().columns


def shortened(text: str) -> str:
    """The first line of a text, for a table."""
    line, _, more = text.partition("\n")
    return line if len(line) <= SHORT and not more else f"{line[:SHORT]}…"
