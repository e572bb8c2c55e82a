"""However changes are grouped, they do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.store.words import NOW_MS, accept, bury, end, progress, redrive
from tests.unit.store.empty_tables import empty_tables

from canoa.execution.outcome import Outcome
from canoa.store import sqlite_batch
from canoa.store.port import Sent
from canoa.store.schema import metadata

if TYPE_CHECKING:
    from canoa.store.port import Answer, Change

NAMES = st.sampled_from("ab")
RUNS = st.integers(0, 2)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(lambda name, reply: accept(name, reply_to=reply, outbox=True), NAMES, st.sampled_from([None, "r", "s"])),
    st.builds(
        lambda name, outcome, run: end(name, outcome, run=run, body=outcome.encode()),
        NAMES,
        st.sampled_from([Outcome.OK, Outcome.FAILED, Outcome.CANCELLED]),
        RUNS,
    ),
    st.builds(lambda name, attempt: progress(name, 0.5, attempt=attempt), NAMES, st.integers(1, 3)),
    st.builds(lambda name, later: bury(name, dead_ms=NOW_MS + later), NAMES, st.integers(0, 2)),
    st.builds(redrive, NAMES),
    st.builds(lambda seq: Sent(seq=seq), st.integers(1, 4)),
)


def outcome_of(groups: list[list[Change]]) -> tuple[list[Answer], dict[str, list[Any]]]:
    """The answers, and everything that is in the tables afterwards."""
    with empty_tables() as connection:
        answers = [answer for group in groups for answer in sqlite_batch.apply(connection, group)]
        rows = {
            table.name: connection.execute(f"SELECT * FROM {table.name} ORDER BY 1").fetchall()
            for table in metadata.tables.values()
        }
    return answers, rows


@settings(max_examples=150)
@given(st.lists(st.lists(CHANGES, max_size=6), max_size=5))
def test_a_batch_does_what_its_changes_do_one_after_the_other(groups: list[list[Change]]) -> None:
    # A number of the outbox is only known once it is written: `Sent` speaks of what was there before the batch.
    groups = [sorted(group, key=lambda change: not isinstance(change, Sent)) for group in groups]

    assert outcome_of(groups) == outcome_of([[change] for group in groups for change in group])


@settings(max_examples=150)
@given(st.lists(CHANGES, max_size=12))
def test_a_task_ends_once_per_run_and_a_letter_is_redriven_once_per_death(changes: list[Change]) -> None:
    answers, rows = outcome_of([changes])

    for name in "ab":
        mine = [
            (change, answer)
            for change, answer in zip(changes, answers, strict=True)
            if name in (getattr(change, "task_id", None), getattr(getattr(change, "letter", None), "task_id", None))
        ]
        first = [change for change, answer in mine if getattr(answer, "is_first", False)]
        again = [change for change, answer in mine if type(change) is type(redrive(name)) and answer]
        assert len({change.run for change in first}) == len(first)  # type: ignore[union-attr]
        assert len([row for row in rows["tasks"] if row[0] == name]) <= 1
        buried = [change for change, answer in mine if type(change) is type(bury(name)) and answer]
        assert len(again) <= len(first) + len(buried)
