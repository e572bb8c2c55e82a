"""`canoa task`: the whole story of a routed task, and running again what went wrong."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from canoa.cli import output, story, watching
from canoa.cli.opening import open_door
from canoa.cli.options import BrokerUrl
from canoa.cli.result import TaskIdArgument
from canoa.errors import ResultNotReady

task_app = typer.Typer(no_args_is_help=True, help="The whole story of a routed task.")


@task_app.command()
def show(
    task_id: TaskIdArgument,
    broker: BrokerUrl = None,
    step: Annotated[str, typer.Option(help="Print what this step gave, as JSON.", metavar="NAME")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a tree.")] = False,
) -> None:
    """Each step and each attempt: which node and why, how long it queued, travelled and ran."""
    with output.errors_explained(as_json=as_json), closing(open_door(broker)) as door:
        if step:
            given = door.output(task_id, step)
            if not given.has_output:
                raise ResultNotReady(f"step {step!r:.80} of task {task_id} gave nothing: it is {given.step.state}")
            output.data(given if as_json else given.output)
            return
        told = door.story(task_id)
        if as_json:
            output.data(told)
            return
        for line in story.lines(told):
            output.line(line)


@task_app.command()
def rerun(
    task_id: TaskIdArgument,
    broker: BrokerUrl = None,
    watch: Annotated[bool, typer.Option("--watch", help="Draw its steps until it ends, and print the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print how it stands then.")] = False,
) -> None:
    """Run the steps again that did not succeed, or were compensated; the others keep their results. Where
    compensations failed, run only these."""
    with output.errors_explained(as_json=as_json), closing(open_door(broker)) as door:
        task = door.rerun(task_id)
        if watch:
            output.data(watching.result_of(door, task_id, task.action))
        elif as_json:
            output.data(task)
        else:
            output.line(task.id)
