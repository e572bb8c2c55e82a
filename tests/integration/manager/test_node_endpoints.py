"""A manager calls endpoints of nodes only where its setting allows; whoever is reached otherwise is a node like any."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.integration.manager.test_registering import GW, RESIZE_URN, chosen
from tests.unit.manager.words import RESIZE, registration

from canoa.broker.port import Message
from canoa.clock import now_ms
from canoa.execution.endpoints import parse_endpoints
from canoa.execution.step_moves import Need
from canoa.manager.catalogue import Presence
from canoa.manager.claims import Reason
from canoa.manager.node_settings import NodeSettings
from canoa.vocabulary import AMQP, HTTP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from tests.integration.manager.town import Town

    from canoa.broker.port import PublishOutcome
    from canoa.manager.nodes import Nodes

NEXT_DOOR = "127.0.0.2"
WHY = f"{NEXT_DOOR} is not among node_endpoints=127.0.0.1; add it there if nodes of yours are there"


def here_alone() -> NodeSettings:
    return NodeSettings(endpoints=parse_endpoints("node_endpoints", "127.0.0.1"))


@asynccontextmanager
async def next_door() -> AsyncIterator[tuple[str, list[str]]]:
    """An address that is not called, and whoever came nevertheless."""
    came: list[str] = []

    def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.close()

    async with await asyncio.start_server(on_connection, NEXT_DOOR, 0) as server:
        yield f"http://{NEXT_DOOR}:{server.sockets[0].getsockname()[1]}", came


def considered(manager: Nodes) -> list[tuple[str, str]]:
    return [(each.node_id, each.ruled_out or each.why) for each in manager.explain(Need(RESIZE, now_ms())).considered]


async def test_a_node_whose_endpoint_is_refused_is_reached_by_its_queue_and_the_reason_is_told_once(
    memory_town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    town = memory_town
    manager = await town.start_manager(here_alone())
    await town.listen(GW)
    async with next_door() as (endpoint, came):
        for is_forced in (False, True):  # at the edge, an address would come before a queue
            await town.register(layer="EDGE", endpoint=endpoint, forceRegister=is_forced)
        await town.until(lambda: manager.registrations.taken == 2 and town.acks())
        row = manager.catalogue.rows[GW]

        assert row.all_ways == (HTTP, AMQP)
        assert manager.reaching.ways(row) == (AMQP,)
        assert await posted(manager) is None
        assert await manager.reaching.seen(GW) == {AMQP: 1}

    assert came == []
    assert chosen(manager) == GW
    assert considered(manager) == [(GW, f"its turn is next; its endpoint is not called: {WHY}")]
    assert manager.caller.refused == {"foreign": 2}
    assert caplog.text.count("endpoint_refused") == 1


async def test_a_node_that_has_nothing_but_an_endpoint_that_is_refused_is_not_accepted(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(here_alone())
    async with next_door() as (endpoint, came):
        await town.publish(registration("", endpoint=endpoint), registration("other"))
        await town.until(lambda: town.acks("other"))

    assert came == []
    assert [row.node_id for row in await town.store.nodes()] == ["other"]
    assert manager.registrations.refused == {Reason.ENDPOINT: 1}


async def test_a_farewell_is_heard_whatever_is_called(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    name = f"http://{NEXT_DOOR}:9"
    await town.register("", endpoint=name)
    await town.until(lambda: chosen(manager) == name)
    narrow = await town.start_manager(here_alone())
    await town.stop(manager)

    await town.register("", endpoint=name, actions=[])

    await town.until(lambda: state(narrow, name) == Presence.LEFT)


async def test_a_node_that_was_accepted_before_the_setting_was_narrowed_gets_no_work_and_the_reason_is_told(
    memory_town: Town,
) -> None:
    town = memory_town
    name = f"http://{NEXT_DOOR}:9"
    wide = await town.start_manager()
    await town.register("", endpoint=name, actions=[RESIZE_URN])
    await town.until(lambda: chosen(wide) == name)

    narrow = await town.start_manager(here_alone())

    assert chosen(narrow) is None
    assert state(narrow, name) == Presence.UNREACHABLE
    assert considered(narrow) == [(name, f"unreachable: its endpoint is not called: {WHY}")]


def state(manager: Nodes, name: str) -> str:
    rows = {str(node_id): row for node_id, row in manager.catalogue.rows.items()}
    return manager.catalogue.state(rows[name], manager.catalogue.now_ms())


async def posted(manager: Nodes) -> PublishOutcome:
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    message = Message(body=b"{}", headers={"nodeId": GW}, message_id="m1")
    manager.reaching.post(GW, [message], lambda _, outcome: told.set_result(outcome))
    return await told
