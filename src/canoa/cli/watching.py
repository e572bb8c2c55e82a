"""Watching a routed task: its steps drawn live where stderr is a terminal, otherwise one line per change."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import typer

from canoa.cli import output, waiting
from canoa.cli.story import clean, standing
from canoa.cli.times import shown_ms
from canoa.client.calls import AWAY, KeptCalls
from canoa.errors import ResultNotReady

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from canoa.client.door import Door
    from canoa.recorder.routed_views import StepView, StoryView

COLOURS: Final = {"ok": "green", "blocked": "dim", "skipped": "dim", "waiting": "yellow", "sent": "cyan"}
FAILED: Final = "red"


def result_of(door: Door, task_id: str, name: str, *, wait_s: float | None = None, is_cancelling: bool = False) -> Any:
    """The result, or what ended the task instead, drawing its steps meanwhile. Ctrl-C ends the program with 130."""
    calls = KeptCalls(door)
    try:
        with _drawn() as draw:
            return _followed(door, calls, task_id, draw, wait_s)
    except ResultNotReady as exc:
        told = waiting.left(calls, task_id, is_cancelling)
        raise ResultNotReady(f"task {task_id} ({name}) has no result after {wait_s:g} s; {told}") from exc
    except KeyboardInterrupt:
        output.say(f"interrupted: task {task_id} ({name}): {waiting.left(calls, task_id, is_cancelling)}")
        raise typer.Exit(output.INTERRUPTED) from None


def _followed(
    door: Door, calls: KeptCalls, task_id: str, draw: Callable[[StoryView], None], wait_s: float | None
) -> Any:
    def look(_: object = None) -> None:
        with suppress(*AWAY):  # whoever answers is started anew: the task goes on, and so does the wait for it
            draw(door.story(task_id))

    look()
    try:
        return calls.finish(task_id, wait_s=wait_s, watch=look)
    finally:
        look()


@contextmanager
def _drawn() -> Iterator[Callable[[StoryView], None]]:
    if not sys.stderr.isatty():
        yield _Changes()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield lambda story: live.update(_table(story), refresh=True)


class _Changes:
    """Says what is new in a story."""

    def __init__(self) -> None:
        self._before: StoryView | None = None

    def __call__(self, story: StoryView) -> None:
        for line in changes(self._before, story):
            output.say(line)
        self._before = story


def changes(before: StoryView | None, after: StoryView) -> list[str]:
    """One line for each step that moved. What waits from the start for others says nothing new."""
    known = {} if before is None else {step.name: _said(step) for step in before.steps}
    return [
        f"{step.name}: {said}"
        for step in after.steps
        if (said := _said(step)) != known.get(step.name) and not (before is None and step.state == "blocked")
    ]


def _said(step: StepView) -> str:
    if step.outcome is None and step.state == "sent":
        attempt = step.attempts[-1].attempt if step.attempts else 1
        again = f", attempt {attempt}" if attempt > 1 else ""
        return f"sent to {clean(step.node_id or '?')}{again}"
    where = f" on {clean(step.node_id)}" if step.node_id and step.state == "ended" else ""
    ran = f", ran {_ran(step)}" if step.state == "ended" and _ran(step) != "-" else ""
    why = f": {clean(step.error)}" if step.error else ""
    return f"{standing(step)}{where}{ran}{why}"


def _ran(step: StepView) -> str:
    return shown_ms(step.attempts[-1].ran_ms) if step.attempts else "-"


def _table(story: StoryView) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        "step", "state", "node", "tries", "queued", "travelled", "ran", "says", box=SIMPLE_HEAD, pad_edge=False
    )
    for step in story.steps:
        last = step.attempts[-1] if step.attempts else None
        state = standing(step)
        drawn.add_row(
            Text(step.name),
            Text(state, style=COLOURS.get(state, FAILED)),
            Text(clean(step.node_id or "-")),
            str(last.attempt if last else 0),
            shown_ms(last.queued_ms if last else None),
            shown_ms(last.travelled_ms if last else None),
            shown_ms(last.ran_ms if last else None),
            Text(clean(step.error or (f"after {', '.join(step.after)}" if state == "blocked" else ""))),
        )
    return drawn
