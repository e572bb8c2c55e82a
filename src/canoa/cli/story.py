"""The story of a routed task as text: a tree of its steps, and under each one its attempts, their nodes and times.

Values in, lines out; nothing is printed here. What nodes and actions say is shown without control characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canoa.cli.times import shown_ms, shown_time, shown_took

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from canoa.recorder.routed_views import AttemptView, StepView, StoryView
    from canoa.recorder.views import TaskView

MAX_SAID_CHARS: Final = 200


def lines(story: StoryView) -> list[str]:
    width = max((len(step.name) for step in story.steps), default=0)
    told = [_heading(story)]
    for index, step in enumerate(story.steps, start=1):
        is_last = index == len(story.steps)
        told.append(f"{'└─' if is_last else '├─'} {step.name:{width}}  {_step(step)}")
        told += [f"{'  ' if is_last else '│ '} {' ' * width}  {line}" for line in _attempts(step)]
    return told


def standing(step: StepView) -> str:
    """One word: how it ended, or where it stands."""
    return step.outcome or step.state


def clean(text: str) -> str:
    """One line that cannot move a terminal's cursor."""
    line = " ".join(text.split())
    short = line if len(line) <= MAX_SAID_CHARS else f"{line[:MAX_SAID_CHARS]}…"
    return "".join(each if each.isprintable() else "?" for each in short)


def _heading(story: StoryView) -> str:
    task = story.task
    run = f", run {task.run + 1}" if task.run else ""
    return f"task {task.id}  {story.plan}  {_task_standing(task)}  (submitted {shown_time(task.submitted_at)}{run})"


def _task_standing(task: TaskView) -> str:
    return task.state if task.outcome is None else f"{task.outcome}, took {shown_took(task)}"


def _step(step: StepView) -> str:
    after = f"after {', '.join(step.after)}" if step.after else f"undoes {step.compensates}" if step.compensates else ""
    why = clean(step.error or "") if not step.attempts or step.attempts[-1].error != step.error else ""
    return "  ".join(filter(None, [f"{standing(step):9}", step.action, after, why])).rstrip()


def _attempts(step: StepView) -> Iterator[str]:
    width = max((len(each.node_id) for each in step.attempts), default=0)
    for each in step.attempts:
        where = f"{each.attempt}. {clean(each.node_id):{width}}  {each.outcome or 'out':9}"
        yield f"{where}  {_times(each)}  ({clean(each.why)})"
        for passed in each.passed:
            yield f"   not {clean(passed)}"
        if each.error:
            yield f"   {clean(each.error)}"


def _times(attempt: AttemptView) -> str:
    parts: Sequence[tuple[str, int | None]] = [
        ("queued", attempt.queued_ms),
        ("travelled", attempt.travelled_ms),
        ("ran", attempt.ran_ms),
    ]
    return ", ".join(f"{name} {shown_ms(ms)}" for name, ms in parts if ms is not None) or "no times are known"
