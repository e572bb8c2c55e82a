"""Pages of tasks: every filter, newest first, without gaps or repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import MAIL, NOW_MS, RESIZE, accept, accepted, applied, end, progress

from canoa.execution.outcome import Outcome
from canoa.store.port import Cursor, State, TaskFilter

if TYPE_CHECKING:
    from canoa.store.port import Store, TaskRow

EVERYTHING = [f"{number:02}" for number in range(24)]


def action_of(name: str) -> str:
    return MAIL if int(name) % 2 else RESIZE


def standing_of(name: str) -> State | Outcome:
    return (State.WAITING, State.RUNNING, Outcome.OK, Outcome.FAILED)[int(name) // 2 % 4]


def is_wanted(name: str, wanted: TaskFilter) -> bool:
    standing = standing_of(name)
    state = standing if isinstance(standing, State) else State.ENDED
    return (
        wanted.action in (None, action_of(name))
        and wanted.state in (None, state)
        and wanted.outcome in (None, standing)
    )


@pytest.fixture
async def filled(store: Store) -> Store:
    """Of every action and standing some, three submitted at each moment."""
    for name in EVERYTHING:
        action = MAIL if int(name) % 2 else RESIZE
        await applied(store, accept(name, action=action, at_ms=NOW_MS + int(name) // 3))
        match standing_of(name):
            case State.RUNNING:
                await applied(store, progress(name, 0.5))
            case Outcome() as outcome:
                await applied(store, end(name, outcome))
            case _:
                pass
    return store


async def pages(store: Store, wanted: TaskFilter, *, limit: int) -> list[TaskRow]:
    found: list[TaskRow] = []
    page = await store.tasks(wanted, limit=limit)
    while page:
        assert len(page) <= limit
        found += page
        page = await store.tasks(wanted, limit=limit, before=Cursor(page[-1].submitted_ms, page[-1].id))
    return found


FILTERS = [
    TaskFilter(action=action, state=state, outcome=outcome)
    for action in (None, MAIL)
    for state in (None, *State)
    for outcome in (None, Outcome.OK, Outcome.CANCELLED)
]


@pytest.mark.parametrize("limit", [2, 100])
async def test_pages_hold_what_is_wanted_newest_first_without_gaps(filled: Store, limit: int) -> None:
    for wanted in FILTERS:
        found = await pages(filled, wanted, limit=limit)

        assert [row.id for row in found] == [name for name in reversed(EVERYTHING) if is_wanted(name, wanted)], wanted


async def test_a_row_shows_where_its_task_stands(filled: Store) -> None:
    for row in await filled.tasks(TaskFilter(), limit=100):
        standing = standing_of(row.id)
        assert (row.state, row.outcome) == (
            (standing, None) if isinstance(standing, State) else (State.ENDED, standing)
        )


async def test_a_task_submitted_meanwhile_shifts_no_page(filled: Store) -> None:
    first = await filled.tasks(TaskFilter(), limit=5)
    await accepted(filled, "newer", at_ms=NOW_MS + 10**6)

    second = await filled.tasks(TaskFilter(), limit=5, before=Cursor(first[-1].submitted_ms, first[-1].id))

    assert [row.id for row in first + second] == list(reversed(EVERYTHING))[:10]


async def test_unfinished_tasks_come_oldest_first_without_gaps(filled: Store) -> None:
    found: list[str] = []
    page = await filled.unfinished(limit=5)
    while page:
        found += [task.id for task in page]
        page = await filled.unfinished(limit=5, after=Cursor(page[-1].submitted_ms, page[-1].id))

    assert found == [name for name in EVERYTHING if isinstance(standing_of(name), State)]
