"""What a manager counted as out at a node is put right by the store, within seconds where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.manager.test_nodes_life import registered
from tests.integration.manager.test_registering import GW, chosen

from canoa.manager.node_settings import NodeSettings

if TYPE_CHECKING:
    import pytest
    from tests.integration.manager.town import Town


async def test_a_node_whose_answers_others_heard_is_not_full_for_long(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(inbox=2))
    await registered(town)

    for _ in range(2):
        manager.inboxes.sent(GW)  # of which the store knows nothing, or nothing any more
    assert chosen(manager) is None

    await town.until(lambda: chosen(manager) == GW)


async def test_a_node_that_is_full_is_said_once(memory_town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town = memory_town
    manager = await town.start_manager(NodeSettings(inbox=1))
    await registered(town)
    await town.send_step(manager)

    for _ in range(3):
        await manager.inbox_keeper.look()

    assert chosen(manager) is None
    assert caplog.text.count("node_is_full") == 1
