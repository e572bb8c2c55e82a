"""How a task ends: once, by the first result of its current run."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

from tests.contract.store.words import NOW_MS, accepted, applied, end, ended, result_body, row

from canoa.execution.outcome import Outcome
from canoa.store.port import Ended, State
from canoa.vocabulary import NodeId
from canoa.wire.ids import new_task_id

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.port import Store


async def test_an_end_is_kept_with_its_result(store: Store) -> None:
    await accepted(store, "a")

    await ended(store, "a", body=b"42", started_ms=NOW_MS + 500, attempts=2, node_id=NodeId("node-1"))

    seen = await row(store, "a")
    assert (seen.state, seen.outcome, seen.attempts) == (State.ENDED, Outcome.OK, 2)
    assert (seen.started_ms, seen.ended_ms, seen.node_id) == (NOW_MS + 500, NOW_MS + 1000, NodeId("node-1"))
    assert await result_body(store, "a") == b"42"


async def test_the_first_result_wins(store: Store) -> None:
    await accepted(store, "a")
    await ended(store, "a", body=b"first")

    second = await ended(store, "a", Outcome.FAILED, body=b"second")

    assert not second.is_first
    assert (await row(store, "a")).outcome is Outcome.OK
    assert await result_body(store, "a") == b"first"


async def test_the_first_result_wins_within_a_batch(store: Store) -> None:
    await accepted(store, "a")

    first, second = await applied(store, end("a", body=b"first"), end("a", body=b"second"))

    assert (first.is_first, second.is_first) == (True, False)
    assert await result_body(store, "a") == b"first"


async def test_those_who_wait_are_named_again_when_an_end_is_repeated(store: Store) -> None:
    """Whoever ended it may have died before he told them."""
    await accepted(store, "a", reply_to="canoa.reply.1")
    await ended(store, "a")

    assert await ended(store, "a") == Ended(is_first=False, reply_to=("canoa.reply.1",))


async def test_a_result_of_another_run_changes_nothing_and_is_told_to_nobody(store: Store) -> None:
    await accepted(store, "a", reply_to="canoa.reply.1")

    assert await ended(store, "a", run=1) == Ended(is_first=False)
    assert (await row(store, "a")).state is State.WAITING


async def test_the_end_of_a_task_that_was_never_seen_is_kept(store: Store) -> None:
    task_id = new_task_id()

    assert await ended(store, task_id, body=b"42", run=2) == Ended(is_first=True)

    seen = await row(store, task_id)
    assert (seen.outcome, seen.run, seen.submitted_ms) == (Outcome.OK, 2, int(task_id[:12], 16))
    assert await result_body(store, task_id) == b"42"
    assert not (await ended(store, task_id, run=2)).is_first


async def test_one_of_several_programs_ends_a_task(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    names = [f"task-{number}" for number in range(50)]

    async def firsts(store: Store, order: list[str]) -> list[str]:
        answers = await applied(store, *(end(name) for name in order))
        return [name for name, answer in zip(order, answers, strict=True) if answer.is_first]

    # Each in another order, so that the batches meet halfway.
    orders = [random.Random(seed).sample(names, len(names)) for seed in range(len(stores))]
    found = await asyncio.gather(*map(firsts, stores, orders))

    assert sorted(itertools.chain(*found)) == sorted(names)
