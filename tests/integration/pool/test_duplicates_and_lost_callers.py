"""Duplicates are counted and harmless; results die with their caller, failures become dead letters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import until_holding
from tests.integration.pool.pool import dead_letter, sample, send, taken, until

from canoa.broker import topology
from canoa.broker.port import Publication
from canoa.client.metrics import METRICS

if TYPE_CHECKING:
    from canoa import Canoa
    from canoa.broker.port import Broker


async def test_a_task_that_comes_twice_gives_one_result_and_counts_one_duplicate(app: Canoa, raw: Broker) -> None:
    ran: list[int] = []

    @app.action
    async def note(number: int) -> int:
        ran.append(number)
        return len(ran)

    async with app.worker():
        pass
    handle = await note.submit(7)
    queue = topology.action_queue_name("shop.note")
    (delivery,) = await taken(raw, queue, 1)
    before = METRICS.duplicates
    for _ in range(2):
        await raw.publish(Publication(message=delivery.message, key=queue))

    async with app.worker(concurrency=1) as worker:
        assert await handle.result(10) == 1
        await until(lambda: METRICS.duplicates == before + 1)
        assert sample(worker, "canoa_duplicates_total") == before + 1

    assert ran == [7, 7]
    assert await handle.result() == 1


async def test_a_result_for_a_caller_that_is_gone_is_dropped(app: Canoa, raw: Broker) -> None:
    ran: list[int] = []

    @app.action
    async def note(number: int) -> None:
        ran.append(number)

    async with app.worker():
        pass
    await note.submit(7)
    await app.aclose()

    async with app.worker() as worker:
        await until(lambda: ran == [7])
    assert sample(worker, "canoa_actions_total", action="shop.note", layer="CLOUD", outcome="ok") == 1
    await until_holding(raw, topology.action_queue_name("shop.note"), 0)
    assert (await raw.depth(topology.DEAD)).messages == 0


async def test_a_failure_for_a_caller_that_is_gone_is_a_dead_letter(app: Canoa, raw: Broker) -> None:
    @app.action
    async def fails() -> None:
        raise ValueError("nobody will know")

    async with app.worker():
        pass
    handle = await fails.submit()
    await app.aclose()

    async with app.worker():
        letter = await dead_letter(raw)

    assert letter.message_id == handle.id
    assert letter.headers["canoa-error"] == "ValueError: nobody will know"


async def test_a_failed_task_nobody_waits_for_is_a_dead_letter_that_can_be_sent_again(app: Canoa, raw: Broker) -> None:
    is_mended = False
    ran: list[str] = []

    @app.action
    async def fails(path: str) -> None:
        if not is_mended:
            raise OSError(f"no such file: {path}")
        ran.append(path)

    async with app.worker() as worker:
        before_ms = time.time() * 1000
        handle = await fails.using(result="none", queue_timeout=60).submit("a.png")
        letter = await dead_letter(raw)

        assert letter.message_id == handle.id
        assert letter.body == b'{"path":"a.png"}'
        assert letter.expiration_s is None
        assert letter.headers["canoa-reason"] == "failed"
        assert letter.headers["canoa-error"] == "OSError: no such file: a.png"
        assert letter.headers["canoa-origin"] == "canoa.action.shop.fails"
        assert letter.headers["canoa-node"] == worker.node_id
        since = letter.headers["canoa-dead-since"]
        assert isinstance(since, int)
        assert before_ms - 1 <= since <= time.time() * 1000

        is_mended = True
        await raw.publish(Publication(message=letter, key=str(letter.headers["canoa-origin"])))
        await until(lambda: ran == ["a.png"])


@pytest.mark.parametrize("reply_to", ["canoa.reply.nobody", "", "x" * 255, "ação"])
async def test_a_reply_to_that_leads_nowhere_stops_nobody(app: Canoa, raw: Broker, reply_to: str) -> None:
    ran: list[int] = []

    @app.action
    async def note(number: int) -> None:
        ran.append(number)

    async with app.worker():
        await send(raw, "shop.note", b'{"number": 1}', reply_to=reply_to)
        await until(lambda: ran == [1])
        await note.call(2)
    await until_holding(raw, topology.action_queue_name("shop.note"), 0)
