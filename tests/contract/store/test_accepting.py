"""What is kept of a task that is accepted, and what a second accept of it does."""

from __future__ import annotations

import asyncio
import random
import string
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.store.words import NOW_MS, RESIZE, accept, accepted, applied, bury, end, ended, progress, row

from canoa.broker.port import Message
from canoa.errors import WrongUse
from canoa.execution.outcome import Outcome
from canoa.store.grouping import GroupWriter
from canoa.store.port import Accept, Accepted, Ended, NewTask, State, TaskFilter, TaskRow
from canoa.vocabulary import ActionName, NodeId, TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import Store


async def test_an_accepted_task_waits(store: Store) -> None:
    await accepted(store, "a")

    assert await row(store, "a") == TaskRow(id=TaskId("a"), action=RESIZE, state=State.WAITING, submitted_ms=NOW_MS)
    assert await store.result(TaskId("a")) is None


async def test_a_task_that_was_never_accepted_is_unknown(store: Store) -> None:
    assert await store.task(TaskId("a")) is None
    assert await store.result(TaskId("a")) is None


async def test_an_accepted_message_comes_back_as_it_was(store: Store) -> None:
    given = Message(
        body=b"\x00\xff",
        content_type="application/msgpack",
        content_encoding="zstd",
        headers={"text": "é", "bytes": b"\x00", "nested": [1, {"deep": None}], "float": 0.5, "yes": True},
        persistent=False,
        priority=3,
        expiration_s=1.5,
        message_id="a",
        timestamp_s=12,
    )
    task = NewTask(
        id=TaskId("a"), action=RESIZE, message=given, submitted_ms=NOW_MS, due_ms=NOW_MS + 5, reply_to="canoa.reply.1"
    )

    await applied(store, Accept(task=task))

    assert await store.unfinished(limit=10) == [task]


async def test_a_task_is_accepted_once(store: Store) -> None:
    await accepted(store, "a")

    assert await applied(store, accept("a")) == [Accepted(is_new=False)]


async def test_accepting_a_task_that_has_ended_says_so(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a")

    assert await applied(store, accept("a", reply_to="late")) == [Accepted(is_new=False, is_ended=True)]
    assert (await row(store, "a")).outcome is Outcome.OK


async def test_everybody_who_accepts_a_task_hears_of_its_end(store: Store) -> None:
    await accepted(store, "a", reply_to="canoa.reply.1")
    await applied(store, accept("a", reply_to="canoa.reply.2"), accept("a", reply_to="canoa.reply.1"), accept("a"))

    assert await ended(store, "a") == Ended(is_first=True, reply_to=("canoa.reply.1", "canoa.reply.2"))


async def test_the_last_fifty_who_accept_a_task_hear_of_its_end(store: Store) -> None:
    """Each new client with the same key adds a name: without a bound the row would grow with every one of them."""
    for number in range(60):
        await applied(store, accept("a", reply_to=f"canoa.reply.{number}"))

    expected = tuple(f"canoa.reply.{number}" for number in range(10, 60))
    assert await ended(store, "a") == Ended(is_first=True, reply_to=expected)


async def test_order_counts_within_a_batch(store: Store) -> None:
    answers = await applied(
        store, accept("a", reply_to="r"), accept("a"), progress("a", 0.5), end("a"), end("a"), accept("a")
    )

    assert answers == [
        Accepted(is_new=True),
        Accepted(is_new=False),
        None,
        Ended(is_first=True, reply_to=("r",)),
        Ended(is_first=False, reply_to=("r",)),
        Accepted(is_new=False, is_ended=True),
    ]
    assert (await row(store, "a")).outcome is Outcome.OK


async def test_a_batch_that_fails_changes_nothing(store: Store) -> None:
    """One of its values fits into no database."""
    with pytest.raises(WrongUse, match="cannot keep"):
        await store.apply([accept("a"), accept("b", at_ms=2**80)])

    assert await store.tasks(TaskFilter(), limit=10) == []
    await accepted(store, "a")


async def test_a_value_that_breaks_a_rule_of_the_tables_is_wrong_use_and_not_an_absent_store(store: Store) -> None:
    """So nobody tries it again for ever: that type alone says that it will never be kept."""
    without_time: Any = None

    with pytest.raises(WrongUse, match="cannot keep") as refused:
        await store.apply([accept("a", at_ms=without_time)])

    assert refused.type is WrongUse


async def test_a_change_that_cannot_be_kept_does_not_hold_up_its_group(store: Store) -> None:
    """An action too long for an index of PostgreSQL; SQLite keeps it."""
    long = ActionName("".join(random.Random(7).choices(string.ascii_letters, k=20_000)))
    writer = GroupWriter(store)

    answers = await asyncio.gather(
        writer.apply(accept("a")),
        writer.apply(accept("b", action=long)),
        writer.apply(bury("c", action=long)),
        writer.apply(accept("d")),
        return_exceptions=True,
    )

    assert [answers[0], answers[3]] == [Accepted(is_new=True)] * 2
    assert [type(answer) for answer in answers[1:3]] in ([Accepted, bool], [WrongUse, WrongUse])


async def test_an_empty_batch_is_fine(store: Store) -> None:
    assert await store.apply([]) == []


async def test_what_one_program_accepts_another_one_sees(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()

    await accepted(first, "a")

    assert (await row(second, "a")).state is State.WAITING
    assert await applied(second, accept("a")) == [Accepted(is_new=False)]


async def test_progress_is_seen_while_a_task_runs(store: Store) -> None:
    await accepted(store, "a")

    await applied(store, progress("a", 0.25, "resizing", node_id=NodeId("node-1")))

    seen = await row(store, "a")
    assert (seen.state, seen.progress, seen.progress_text) == (State.RUNNING, 0.25, "resizing")
    assert (seen.node_id, seen.attempts, seen.started_ms) == (NodeId("node-1"), 1, NOW_MS + 10)


async def test_a_later_attempt_starts_the_clock_again(store: Store) -> None:
    await accepted(store, "a")
    await applied(store, progress("a", 0.9), progress("a", 0.95, at_ms=NOW_MS + 20))
    assert (await row(store, "a")).started_ms == NOW_MS + 10

    await applied(store, progress("a", 0.1, attempt=2, at_ms=NOW_MS + 500), progress("a", 0.99, attempt=1))

    seen = await row(store, "a")
    assert (seen.started_ms, seen.attempts, seen.progress) == (NOW_MS + 500, 2, 0.1)


async def test_progress_of_a_task_that_has_ended_or_is_unknown_changes_nothing(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a")

    await applied(store, progress("a", 0.5), progress("b", 0.5))

    assert (await row(store, "a")).progress is None
    assert await store.task(TaskId("b")) is None


async def test_progress_is_between_nothing_and_all(store: Store) -> None:
    await accepted(store, "a", "b", "c")

    await applied(store, progress("a", float("nan")), progress("b", 7.0), progress("c", -1.0))

    assert [(await row(store, task_id)).progress for task_id in "abc"] == [None, 1.0, 0.0]


async def test_a_count_that_nobody_can_have_reached_fails_no_batch(store: Store) -> None:
    await accepted(store, "a", "b")

    await applied(store, progress("a", 0.5, attempt=2**80), end("b", attempts=-(2**80)))

    assert [(await row(store, task_id)).attempts for task_id in "ab"] == [2**31 - 1, 0]


async def test_text_that_no_database_can_keep_is_made_plain(store: Store) -> None:
    await accepted(store, "a", "b")

    await applied(
        store, progress("a", 0.5, "half\0way"), end("b", Outcome.FAILED, error="bad\0\ud800 é", traceback="\0")
    )

    assert (await row(store, "a")).progress_text == "half\N{REPLACEMENT CHARACTER}way"
    assert (await row(store, "b")).error == "bad\N{REPLACEMENT CHARACTER}? é"


async def test_an_id_may_hold_anything(store: Store) -> None:
    ids = ["nul\0inside", "é", "'; DROP TABLE tasks; --", " ", "x" * 255]

    await accepted(store, *ids)

    for task_id in ids:
        assert (await row(store, task_id)).state is State.WAITING
    assert (await ended(store, ids[0])).is_first
