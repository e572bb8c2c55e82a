"""Times as people read them in tables and lines: when, how long, how long ago. Values in, texts out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canoa.recorder.views import TaskView


def shown_time(at: datetime) -> str:
    """By the clock of whoever looks; without the year, when it is this one."""
    here = at.astimezone()
    return here.strftime("%m-%d %H:%M:%S" if here.year == datetime.now().year else "%Y-%m-%d %H:%M:%S")


def shown_ms(ms: int | None) -> str:
    if ms is None:
        return "-"
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1_000:.2f} s" if ms < 60_000 else f"{ms // 60_000} min {ms % 60_000 / 1_000:.0f} s"


def shown_took(task: TaskView) -> str:
    """Wherever a task is shown: how long whoever submitted it had to wait for its end."""
    return shown_ms(None if task.took_s is None else round(1000 * task.took_s))


def ago(seconds: float) -> str:
    if seconds < 1:
        return "now"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
