"""Registrations outlast a store that is away, and one that cannot be written does not hold up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.manager.town import Town
from tests.unit.manager.words import registration

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.errors import StoreUnreachable, WrongUse
from canoa.manager.claims import Reason
from canoa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from canoa.store.routed_port import NodeRow


class TroubledStore(SqliteStore):
    failures = 0  # still to come
    unwritable = "cursed"

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> int:
        if self.failures:
            self.failures -= 1
            raise StoreUnreachable("the store is away")
        if any(row.node_id == self.unwritable for row in nodes):
            raise WrongUse("no database can write this")
        return await super().put_nodes(nodes)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TroubledStore]:
    store = TroubledStore(tmp_path / "canoa.db")
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
async def town(store: TroubledStore) -> AsyncIterator[Town]:
    hub = MemoryHub()
    async with Town(lambda: MemoryBroker(hub), store) as town:
        yield town


async def test_a_registration_is_written_once_the_store_is_back(town: Town, store: TroubledStore) -> None:
    await town.start_manager()
    store.failures = 1

    await town.register()

    await town.until(town.acks)
    assert store.failures == 0


async def test_what_was_not_written_is_with_the_broker_when_the_manager_ends(town: Town, store: TroubledStore) -> None:
    manager = await town.start_manager()
    store.failures = 1_000_000
    await town.register()
    await town.until(lambda: store.failures < 1_000_000)
    await town.stop(manager)
    await town.close_brokers_of_managers()

    store.failures = 0
    await town.start_manager()

    await town.until(town.acks)


async def test_one_that_cannot_be_written_is_refused_and_the_others_get_in(town: Town) -> None:
    manager = await town.start_manager()

    await town.publish(*(registration(name) for name in ("a", "cursed", "b")))

    await town.until(lambda: town.acks("a") and town.acks("b"))
    assert manager.registrations.refused == {Reason.MALFORMED: 1}
    assert not town.acks("cursed")
