"""The story of a routed task, as people read it in a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from canoa.cli import story
from canoa.cli.watching import changes
from canoa.recorder.routed_views import AttemptView, StepView, StoryView
from canoa.recorder.views import TaskView

AT = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)

TASK = TaskView(
    id="0192",
    action="power-factor",
    state="ended",
    outcome="failed",
    submitted_at=AT,
    due_at=None,
    started_at=AT,
    ended_at=AT + timedelta(milliseconds=1240),
    attempts=4,
    node_id="cloud-1",
    error="ValueError: no voltage",
    progress=None,
    progress_text=None,
    run=0,
    took_s=1.24,
)


def attempt(number: int, node_id: str, **said: Any) -> AttemptView:
    known: dict[str, Any] = {
        "why": "next in turn",
        "passed": [],
        "sent_at": AT,
        "started_at": None,
        "ended_at": None,
        "outcome": None,
        "error": None,
        "queued_ms": None,
        "travelled_ms": None,
        "ran_ms": None,
    }
    return AttemptView(attempt=number, node_id=node_id, **{**known, **said})


def step(name: str, *attempts: AttemptView, **said: Any) -> StepView:
    known: dict[str, Any] = {
        "after": [],
        "state": "blocked",
        "outcome": None,
        "error": None,
        "ready_at": None,
        "due_at": None,
        "ended_at": None,
    }
    node_id = attempts[-1].node_id if attempts else None
    filled = {**known, **said}
    return StepView(name=name, action=f"continuum.{name}", node_id=node_id, attempts=list(attempts), **filled)


FETCHED = step(
    "fetch",
    attempt(
        1, "edge-1", outcome="lost", error="its queue is gone", queued_ms=0, passed=["fog-1: it is far", "b: deaf"]
    ),
    attempt(1, "edge-22", outcome="ok", queued_ms=2, travelled_ms=5, ran_ms=31),
    state="ended",
    outcome="ok",
)
FAILED = step(
    "pf",
    attempt(1, "fog-1", outcome="failed", error="ValueError: no voltage", queued_ms=1, travelled_ms=3, ran_ms=1_234),
    state="ended",
    outcome="failed",
    error="ValueError: no voltage",
    after=["fetch"],
)
SKIPPED = step("report", state="skipped", error="pf did not succeed", after=["pf", "fetch"])


def told(*steps: StepView, **said: Any) -> StoryView:
    return StoryView(task=replace(TASK, **said), plan="power-factor", steps=list(steps))


def test_each_step_and_attempt_has_its_node_its_reason_and_its_times(monkeypatch: Any) -> None:
    monkeypatch.setattr(story, "shown_time", lambda _: "06-01 12:00:00")

    assert "\n".join(story.lines(told(FETCHED, FAILED, SKIPPED))) == (
        "task 0192  power-factor  failed, took 1.24 s  (submitted 06-01 12:00:00)\n"
        "├─ fetch   ok         continuum.fetch\n"
        "│          1. edge-1   lost       queued 0 ms  (next in turn)\n"
        "│             not fog-1: it is far\n"
        "│             not b: deaf\n"
        "│             its queue is gone\n"
        "│          1. edge-22  ok         queued 2 ms, travelled 5 ms, ran 31 ms  (next in turn)\n"
        "├─ pf      failed     continuum.pf  after fetch\n"
        "│          1. fog-1  failed     queued 1 ms, travelled 3 ms, ran 1.23 s  (next in turn)\n"
        "│             ValueError: no voltage\n"
        "└─ report  skipped    continuum.report  after pf, fetch  pf did not succeed"
    )


def test_a_task_that_runs_again_says_which_run_it_is(monkeypatch: Any) -> None:
    monkeypatch.setattr(story, "shown_time", lambda _: "06-01 12:00:00")

    [heading] = story.lines(told(state="running", outcome=None, ended_at=None, took_s=None, run=1))

    assert heading == "task 0192  power-factor  running  (submitted 06-01 12:00:00, run 2)"


def test_a_compensation_says_which_step_it_undoes(monkeypatch: Any) -> None:
    monkeypatch.setenv("TZ", "UTC")
    undone = step("fetch.compensation", state="ended", outcome="ok", compensates="fetch")

    told = story.lines(StoryView(task=TASK, plan="power-factor", steps=[FETCHED, undone]))

    assert "└─ fetch.compensation  ok         continuum.fetch.compensation  undoes fetch" in told


def test_what_nodes_say_cannot_move_the_cursor() -> None:
    hostile = step("fetch", attempt(1, "a\x1b[2J", why="b\x07c", error="d\r\nERASED"), state="sent")

    shown = "\n".join(story.lines(told(hostile)))

    assert "a?[2J" in shown
    assert "(b?c)" in shown
    assert "d ERASED" in shown
    assert story.clean("x" * 300) == "x" * 200 + "…"


# --- Without a terminal ---------------------------------------------------------------------------------


def test_what_changes_is_said_once() -> None:
    sent = step("fetch", attempt(1, "edge-1"), state="sent")
    blocked = step("pf", after=["fetch"])
    first, second = told(sent, blocked), told(FETCHED, step("pf", attempt(2, "fog-1"), state="sent", after=["fetch"]))

    assert changes(None, first) == ["fetch: sent to edge-1"]
    assert changes(first, first) == []
    assert changes(first, second) == ["fetch: ok on edge-22, ran 31 ms", "pf: sent to fog-1, attempt 2"]
    assert changes(second, told(FETCHED, FAILED, SKIPPED)) == [
        "pf: failed on fog-1, ran 1.23 s: ValueError: no voltage",
        "report: skipped: pf did not succeed",
    ]
