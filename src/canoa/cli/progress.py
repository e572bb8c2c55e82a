"""Bars for people who wait: on stderr, only where that is a terminal, and gone when the wait is over."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canoa.recorder.views import TaskView


@contextmanager
def task_watched(action: str) -> Iterator[Callable[[TaskView], None] | None]:
    """What to call with each look at the task; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn()]
    with _drawn(columns) as bar:
        shown = bar.add_task(action, total=None, said="waiting")

        def watch(task: TaskView) -> None:
            is_known = task.progress is not None
            done = round(100 * (task.progress or 0))
            said = " ".join(filter(None, [f"{done} %" if is_known else task.state, task.progress_text]))
            bar.update(shown, total=100 if is_known else None, completed=done, said=said)

        yield watch


@contextmanager
def many_counted(action: str, total: int | None) -> Iterator[Callable[[bool], None]]:
    """What to call with each end: whether it went well."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    failed = 0
    with _drawn(columns) as bar:
        shown = bar.add_task(action, total=total, said="")

        def count(is_well: bool) -> None:
            nonlocal failed
            failed += not is_well
            bar.update(shown, advance=1, said=f"{failed} failed" if failed else "")

        yield count


def _drawn(columns: list[Any]) -> Any:
    """What is printed meanwhile appears above it. Text of actions is no markup."""
    from rich.console import Console
    from rich.progress import Progress

    for column in columns:
        if hasattr(column, "markup"):
            column.markup = False
    return Progress(*columns, console=Console(stderr=True, highlight=False), transient=True, redirect_stdout=False)
