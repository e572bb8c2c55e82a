"""Registrations outlast a store that is away, and one that cannot be written does not hold up the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.integration.manager.town import Town, tell
from tests.unit.manager.words import RESIZE, registration

from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.errors import StoreUnreachable, WrongUse
from canoa.execution.step_moves import Verdict
from canoa.manager.claims import Reason
from canoa.store.routed_port import Moved
from canoa.store.sqlite import SqliteStore
from canoa.vocabulary import NodeId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from canoa.store.routed_port import NodeRow, NodesPut


GW = NodeId("gw-7")


class TroubledStore(SqliteStore):
    failures = 0  # still to come
    unwritable = "cursed"
    ends_the_writer = False  # by what no `except Exception` sees

    async def put_nodes(self, nodes: Sequence[NodeRow]) -> NodesPut:
        if self.failures:
            self.failures -= 1
            raise StoreUnreachable("the store is away")
        if self.ends_the_writer:
            self.ends_the_writer = False
            raise asyncio.CancelledError
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


async def test_a_writer_that_ends_for_whatever_reason_is_started_again(town: Town, store: TroubledStore) -> None:
    await town.start_manager()
    store.ends_the_writer = True
    await town.register("first")
    await town.until(lambda: not store.ends_the_writer)

    await town.register("second")

    await town.until(lambda: town.acks("second"))


async def test_a_node_that_registered_since_a_step_was_lost_to_it_is_not_gone(town: Town) -> None:
    manager = await town.start_manager()
    await town.register(instance="old")
    await town.until(town.acks)
    again = msgspec.structs.replace(manager.catalogue.rows[GW], instance="new")
    await town.store.put_nodes([again])  # by another manager, of which this one has not heard yet

    tell(manager, lost())
    await town.until(lambda: manager.catalogue.breakers)

    row = await town.row()
    assert row is not None
    assert (row.instance, bool(row.actions)) == ("new", True)


async def test_a_node_to_which_a_step_was_lost_is_gone_until_it_registers(town: Town) -> None:
    manager = await town.start_manager()
    await town.register()
    await town.until(town.acks)

    tell(manager, lost())

    await town.until(lambda: not manager.catalogue.rows[GW].actions)


def lost() -> Moved:
    return Moved(verdict=Verdict.TAKEN, node_id=GW, action=RESIZE, step_outcome="lost")
