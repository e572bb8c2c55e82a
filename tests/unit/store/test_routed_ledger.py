"""However moves are grouped, they do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.store.routed_words import (
    CHAIN,
    SINGLE,
    Nodes,
    answer,
    begin,
    cancel,
    due,
    failed,
    fan,
    lost,
    rerun,
)
from tests.contract.store.words import NOW_MS
from tests.unit.store.empty_tables import empty_tables

from canoa.errors import WrongUse
from canoa.execution.plan import Given, Plan, Source, Step
from canoa.store import sqlite_routed
from canoa.store.outlines import MAX_BYTES, MAX_OUTLINES, USED_EVERY_MS, Outlines
from canoa.store.routed_notes import Notes
from canoa.store.routed_port import DEFAULT_SETTINGS
from canoa.store.schema import metadata, owed
from canoa.store.sqlite_owed import FREE_OWED, take_owed
from canoa.vocabulary import ActionName

if TYPE_CHECKING:
    import sqlite3

    from canoa.store.routed_port import Move, Moved

    Group: TypeAlias = tuple[list[Move], list[str]]

NAMES = st.sampled_from("ab")
REQUESTS = st.builds(
    lambda name, step, send: f"{name}.{step}.1.{send}", NAMES, st.sampled_from([0, 0, 1, 2, 3]), st.integers(1, 2)
)
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(
        lambda name, plan, reply: begin(name, plan, reply_to=reply),
        NAMES,
        st.sampled_from([SINGLE, CHAIN, fan(2)]),
        st.sampled_from([None, "r", "s"]),
    ),
    st.builds(answer, REQUESTS, st.integers(0, 9)),
    st.builds(failed, REQUESTS),
    st.builds(lambda request, returned: lost(request, is_returned=returned), REQUESTS, st.booleans()),
    st.builds(lambda name, step: due(name, step, NOW_MS + 40_000), NAMES, st.integers(0, 3)),
    st.builds(cancel, NAMES),
    st.builds(rerun, NAMES),
)
GROUPS = st.lists(st.tuples(st.lists(MOVES, max_size=8), st.lists(REQUESTS, max_size=2)), max_size=5)
"""Moves, and what was paid before them."""


def advanced(
    connection: sqlite3.Connection, group: list[Move], notes: Notes, route: Nodes, *, paid: list[str] | None = None
) -> list[Moved]:
    done = sqlite_routed.advance(
        connection, group, paid=paid or [], notes=notes, route=route, settings=DEFAULT_SETTINGS
    )
    done.settle(notes)
    return [moved for ledger in done.ledgers for moved in ledger.answers()]


def outcome_of(groups: list[Group], *, is_forgetful: bool = False) -> tuple[list[Any], dict[str, list[Any]]]:
    """What each move did, and everything that is in the tables afterwards."""
    notes, route = Notes(), Nodes("gw-7")
    with empty_tables() as connection:
        done: list[Moved] = []
        for group, paid in groups:
            if is_forgetful:
                notes.memory.clear()
            done += advanced(connection, group, notes, route, paid=paid)
        rows = {
            table.name: connection.execute(f"SELECT * FROM {table.name} ORDER BY 1, 2").fetchall()
            for table in metadata.tables.values()
            if table is not owed
        }
        left = take_owed(connection, notes.debts, now_ms=NOW_MS + 10**6, limit=1000, for_ms=1).owed
        rows["owed"] = [*{each.key: each for each in left}.values()]  # the same twice is as good as once
    return [(each.verdict, each.outcome, each.step_outcome, each.cancel) for each in done], rows


@settings(max_examples=200, deadline=None)
@given(GROUPS)
def test_a_group_does_what_its_moves_do_one_after_the_other(groups: list[Group]) -> None:
    one_by_one = [each for group, paid in groups for each in [([], paid), *(([move], []) for move in group)]]

    assert outcome_of(groups) == outcome_of(one_by_one)


@settings(max_examples=200, deadline=None)
@given(GROUPS)
def test_what_is_remembered_is_what_is_stored(groups: list[Group]) -> None:
    assert outcome_of(groups) == outcome_of(groups, is_forgetful=True)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_the_errors_of_a_task_count_as_memory_also_if_it_was_loaded(is_loaded: bool) -> None:
    notes, route = Notes(), Nodes("gw-7", retries=3)
    with empty_tables() as connection:
        advanced(connection, [begin("a")], notes, route)
        advanced(connection, [failed("a.0.1.1", "x" * 1000)], notes, route)
        if is_loaded:
            notes.memory.clear()
            advanced(connection, [begin("a", reply_to="r")], notes, route)

    assert notes.memory.take(["a"])["a"].failures_bytes > 1000


@pytest.mark.parametrize("after", [(("b",), ("a",)), (("missing",),), (("a",),)])
def test_a_plan_that_could_never_end_is_refused(after: tuple[tuple[str, ...], ...]) -> None:
    names = "abc"
    steps = tuple(
        Step(name=names[at], action=ActionName("app.work"), after=waited_for) for at, waited_for in enumerate(after)
    )

    with pytest.raises(WrongUse, match="order"):
        outcome_of([([begin("t", Plan(name="bad", steps=steps))], [])])


def test_only_the_plans_that_are_in_use_are_remembered() -> None:
    outlines = Outlines()
    made = [outlines.of(Plan(name=f"p{number}", steps=SINGLE.steps)) for number in range(MAX_OUTLINES + 1)]

    assert outlines.get(made[0].id) is None
    assert outlines.get(made[-1].id) is made[-1]


def test_large_plans_are_remembered_up_to_a_size() -> None:
    outlines = Outlines()
    large: dict[str, Source] = {"text": Given("x" * (MAX_BYTES // 4))}
    made = [
        outlines.of(Plan(name=f"p{number}", steps=(Step(name="a", action=ActionName("app.work"), arguments=large),)))
        for number in range(9)
    ]

    assert [outlines.get(outline.id) is not None for outline in made] == [False] * 6 + [True] * 3


def test_a_plan_is_written_again_before_it_may_be_forgotten() -> None:
    outlines = Outlines()
    used = [(outlines.of(SINGLE), NOW_MS)]
    outlines.written(used)

    assert outlines.to_write(used) == []
    for later_ms in (USED_EVERY_MS, -1):  # or when the clock has gone back
        again = [(outlines.of(SINGLE), NOW_MS + later_ms)]
        assert outlines.to_write(again) == again


def test_looking_for_what_is_left_to_be_sent_does_not_read_what_others_hold() -> None:
    sqlite = sa.create_engine("sqlite://")
    with sqlite.begin() as connection:
        metadata.create_all(connection)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {FREE_OWED}", (1, 2, 3)).fetchall()
    sqlite.dispose()

    reads = [detail for *_, detail in plan if "owed" in detail]
    assert len(reads) == 2
    assert all("SEARCH owed USING COVERING INDEX owed_taken" in detail for detail in reads)
