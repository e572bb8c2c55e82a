"""Every exchange, queue and key that the wire was published with leads to managers, or from them.

Spelled out here, and not taken from `topology.py`: nodes and clients of other makes have these names in their code.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from tests.integration.dispatch.site import WITHIN_S, eventually

from canoa.broker.port import Binding, Queue
from canoa.urn import ACTION_PREFIX
from canoa.wire.ids import new_client_id

if TYPE_CHECKING:
    from tests.integration.dispatch.site import Site

    from canoa.broker.port import Broker, Declaration, Delivery

REQUESTS: Final = "sapparchi.process.request.entrada"
STEP_RESULTS: Final = "sapparchi.task.handler.saida"
STEP_RESULTS_OLD: Final = "sapparchi.task.handler_saida"
FINAL_RESULTS: Final = "sapparchi.task.final.saida"


ANY_KEYS: Final = ("plant.line-3", "x", "")


@pytest.mark.parametrize("exchange", [REQUESTS, ""], ids=["exchange", "queue"])
async def test_a_request_runs_once_whichever_published_way_it_came(site: Site, exchange: str) -> None:
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    keys = (REQUESTS, *ANY_KEYS) if exchange else (REQUESTS,)
    for number, key in enumerate(keys):
        site.requests_go_to = (exchange, key)
        assert await site.result(await site.request("double", data=number)) == 2 * number

    assert len(node.received) == len(keys)
    await eventually(lambda: manager.manager.figures.stats.tasks == {"ok": len(keys)})


@pytest.mark.parametrize("exchange", [STEP_RESULTS, "amq.topic"])
async def test_an_answer_counts_once_whichever_published_way_it_came(site: Site, exchange: str) -> None:
    manager = await site.start_manager()
    node = await site.start_node("gw-1", manager, double=lambda value: 2 * value)

    keys = (STEP_RESULTS, STEP_RESULTS_OLD) if exchange == "amq.topic" else (STEP_RESULTS, *ANY_KEYS)
    for number, key in enumerate(keys):
        node.answers_go_to = (exchange, key)
        assert await site.result(await site.request("double", data=number)) == 2 * number

    await eventually(lambda: manager.manager.figures.stats.step_results == {"taken": len(keys)})


async def test_final_results_are_read_once_by_bindings_of_ones_own_and_from_the_published_queue(site: Site) -> None:
    manager = await site.start_manager()
    await site.start_node("gw-1", manager, double=lambda value: 2 * value)
    ways = [("amq.topic", FINAL_RESULTS), (FINAL_RESULTS, FINAL_RESULTS), (FINAL_RESULTS, "#"), ("", FINAL_RESULTS)]
    heard = [await _listening(site.broker, exchange, key) for exchange, key in ways]

    for number in range(3):
        await site.result(await site.request("double", data=number, request_id=f"order-{number}"))

    for finals in heard:
        async with asyncio.timeout(WITHIN_S):
            said = [msgspec.json.decode((await finals.get()).message.body) for _ in range(3)]
        assert said == [
            {"actionTo": f"{ACTION_PREFIX}plant.double", "requestID": f"order-{number}", "messageData": f"{2 * number}"}
            for number in range(3)
        ]


async def _listening(broker: Broker, exchange: str, key: str) -> asyncio.Queue[Delivery]:
    """To a queue of one's own that is bound so; without an exchange, to the queue of that name."""
    heard: asyncio.Queue[Delivery] = asyncio.Queue()
    name = f"test.own.{new_client_id()}" if exchange else key
    own: list[Declaration] = [Queue(name=name, expires_s=60), Binding(exchange=exchange, queue=name, key=key)]
    await broker.consume(name, heard.put_nowait, prefetch=10, topology=own if exchange else [])
    return heard
