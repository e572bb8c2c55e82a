"""Several managers on one store: nobody's move is lost, and every task ends once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.contract.store.routed_words import CHAIN, answer, begin, fan, move, moved, states, to_nodes
from tests.contract.store.words import row

from canoa.execution.outcome import Outcome
from canoa.execution.step_moves import Verdict
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.routed_port import FullStore, Moved

WIDTH = 40


async def test_the_same_request_at_two_managers_begins_once(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    done = await asyncio.gather(*(move(store, begin("a", fan(3))) for store in stores))

    assert sorted(each.verdict for each in done) == [Verdict.DOUBLE] * 3 + [Verdict.TAKEN]
    assert sum(len(each.owed) for each in done) == 1


async def test_the_same_answer_at_two_managers_counts_once(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    await move(stores[0], begin("a", CHAIN))

    done = await asyncio.gather(*(move(store, answer("a.0.1.1")) for store in stores))

    assert sorted(each.verdict for each in done) == [Verdict.DOUBLE] * 3 + [Verdict.TAKEN]
    assert sum(len(each.owed) for each in done) == 1


async def test_a_join_is_unlocked_once_whoever_hears_the_last_answer(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]
    await move(stores[0], begin("a", fan(WIDTH)))
    parts = to_nodes(await move(stores[0], answer("a.0.1.1")))

    async def hear(store: FullStore, requests: list[str]) -> list[Moved]:
        return [await move(store, answer(request)) for request in requests]

    heard = await asyncio.gather(*(hear(store, parts[at::4]) for at, store in enumerate(stores)))

    sent = [request for done in heard for each in done for request in to_nodes(each)]
    assert sent == [f"a.{WIDTH + 1}.1.1"]
    assert states(await stores[0].steps(TaskId("a"))) == ["ok"] * (WIDTH + 1) + ["sent"]


async def test_groups_that_touch_the_same_tasks_end_each_of_them_once(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    names = [f"t-{number:02}" for number in range(30)]
    await moved(stores[0], *(begin(name) for name in names))
    answers = [answer(f"{name}.0.1.1") for name in names]

    done = await asyncio.gather(
        moved(stores[0], *answers), moved(stores[1], *answers[::-1]), moved(stores[2], *answers[15:])
    )

    ends = [each for group in done for each in group if each.outcome is not None]
    assert len(ends) == len(names)
    assert all([(await row(stores[0], name)).outcome is Outcome.OK for name in names])
