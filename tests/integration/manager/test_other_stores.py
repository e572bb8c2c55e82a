"""Managers on one broker with different stores share requests and nodes by chance: they say so, loudly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.town import Town

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.manager import following
from canoa.store.opening import new_store
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.store.routed_port import FullStore

WARNING = "another_store_on_this_broker"


@pytest.fixture
async def other_store(tmp_path: Path) -> AsyncIterator[FullStore]:
    store = new_store(f"sqlite:///{tmp_path / 'other.db'}")
    await store.open()
    yield store
    await store.aclose()


async def test_managers_with_different_stores_warn_of_each_other(
    routed_store: FullStore, other_store: FullStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SAY_EVERY_S", 0.05)
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.05)
    hub = MemoryHub()
    async with (
        Town(lambda: MemoryBroker(hub), routed_store) as town,
        Town(lambda: MemoryBroker(hub), other_store, name="twin") as twin,
    ):
        await town.start_manager()
        await twin.start_manager()
        await town.until(lambda: caplog.text.count(WARNING) == 2)
        assert following.ONE_STORE in caplog.text

        await twin.start_manager()  # of which the first has been told enough, for a minute
        await town.until(lambda: caplog.text.count(WARNING) == 3)


async def test_managers_with_one_store_have_nothing_to_say(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    first, second = await town.start_manager(), await town.start_manager()
    first.watching.answered(NodeId("gw-7"))
    await town.until(lambda: second.watching.answered_ms(NodeId("gw-7")))

    assert WARNING not in caplog.text
