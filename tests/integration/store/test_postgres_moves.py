"""Moves of routed tasks on PostgreSQL: one statement where all is remembered, and only what is sure is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.contract.store.routed_words import CHAIN, Nodes, answer, begin, data_of, move, moved, pay, sent_to, to_nodes
from tests.contract.store.words import NOW_MS

from canoa.errors import StoreUnreachable
from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.store.postgres import PostgresStore
from canoa.store.postgres_link import MetAnother
from canoa.store.routed_port import HOLD_OWED_MS
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.execution.step_moves import Choice, Need


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.aclose()


def count_statements(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that are sent from now on, each a transaction of its own; others fail."""
    sent: list[str] = []
    pool = store._link._by_index
    assert pool is not None
    fetch = pool.fetch

    class Counted:
        async def fetch(self, sql: str, *arguments: Any) -> Any:
            sent.append(sql)
            return await fetch(sql, *arguments)

    def refused(_: object) -> Any:
        raise AssertionError("it locks rows first")

    monkeypatch.setattr(store._link, "_by_index", Counted())
    monkeypatch.setattr(store._link, "write", refused)
    return sent


async def test_a_task_that_is_remembered_is_moved_by_one_statement_each(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as counting:
        sent = count_statements(store, counting)

        await move(store, begin("a", CHAIN))
        await move(store, answer("a.0.1.1", "x"))
        await moved(store, answer("a.1.1.1", "y"), paid=["a.1.1.1"])
        done = await move(store, answer("a.2.1.1", "z"))

    assert (done.outcome, len(sent)) == (Outcome.OK, 4)


async def test_payments_that_delete_nothing_yet_cost_no_statement(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moved(store, begin("a"), begin("b"))
    with monkeypatch.context() as counting:
        sent = count_statements(store, counting)

        await pay(store, "a.0.1.1")
        assert sent == []
        await pay(store, "b.0.1.1")

    assert len(sent) == 1


async def test_a_commit_whose_outcome_is_unknown_leaves_nothing_remembered(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await move(store, begin("a", CHAIN))
    link = store._link
    write_at_once = link.write_at_once

    async def cut_off(work: Any) -> Any:
        await write_at_once(work)
        raise StoreUnreachable("the link broke before the answer came")

    with monkeypatch.context() as while_cut_off:
        while_cut_off.setattr(link, "write_at_once", cut_off)
        with pytest.raises(StoreUnreachable):
            await move(store, answer("a.0.1.1", "x"))

    again = await move(store, answer("a.0.1.1", "x"))
    left = await store.take_owed(now_ms=NOW_MS + 2 * HOLD_OWED_MS, limit=5, for_ms=1000)
    done = await move(store, answer("a.1.1.1", "y"))

    assert (again.verdict, again.owed) == (Verdict.DOUBLE, ())
    assert [(owed.key, data_of(owed)) for owed in left] == [("a.1.1.1", "x")]
    assert to_nodes(done) == ["a.2.1.1"]


class OneTrial(Nodes):
    """The first attempt is a trial, and there is only one."""

    def __init__(self) -> None:
        super().__init__("gw-7")
        self.chosen: list[str] = []

    def choose(self, need: Need) -> Choice | None:
        choice = super().choose(need)
        if choice is not None and not self.chosen:
            choice = msgspec.structs.replace(choice, node_id=NodeId("recovered"))
        self.chosen += [choice.node_id] if choice is not None else []
        return choice


async def test_a_trial_that_was_chosen_is_sent_though_the_moves_were_taken_twice(store: PostgresStore) -> None:
    await move(store, begin("a", CHAIN))
    nodes = OneTrial()

    late, begun = await moved(store, answer("a.0.9.9"), begin("b"), route=nodes)  # that one writes nothing

    assert late.verdict is Verdict.LATE
    assert (sent_to(begun.owed[0]), nodes.chosen) == ("recovered", ["recovered"])


async def test_a_trial_that_was_chosen_is_sent_though_another_manager_was_faster(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def met_another(_: object) -> Any:
        raise MetAnother

    monkeypatch.setattr(store._link, "write_at_once", met_another)
    nodes = OneTrial()

    begun = await moved(store, begin("a"), begin("b"), route=nodes)

    assert [sent_to(each.owed[0]) for each in begun] == nodes.chosen == ["recovered", "gw-7"]


async def test_what_moves_did_not_change_is_remembered_though_they_had_to_be_taken_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moved(store, begin("a", CHAIN), begin("b", CHAIN))
    await moved(store, answer("a.0.9.9"), answer("b.0.1.1"))
    with monkeypatch.context() as counting:
        sent = count_statements(store, counting)

        done = await moved(store, answer("a.0.1.1"), answer("b.1.1.1"))

    assert ([len(each.owed) for each in done], len(sent)) == ([1, 1], 1)


async def test_a_manager_whose_memory_is_old_writes_nothing_with_it(postgres_url: str) -> None:
    first, second = PostgresStore(postgres_url), PostgresStore(postgres_url)
    await first.open()
    await second.open()
    try:
        await moved(first, begin("a", CHAIN), begin("b", CHAIN))
        await move(second, answer("a.0.1.1", "x"))

        stale, fresh = await moved(first, answer("a.0.1.1", "other"), answer("b.0.1.1", "y"))

        assert (stale.verdict, fresh.verdict) == (Verdict.DOUBLE, Verdict.TAKEN)
        assert await second.step_output(begin("a").task.id, 0) == b'"x"'
        assert first.writes.repeated == 1
    finally:
        await first.aclose()
        await second.aclose()
