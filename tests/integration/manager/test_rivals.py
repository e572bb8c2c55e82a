"""Whoever claims a live node's id: that one is looked for, all of them side by side, and nobody else waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.manager.test_probing_many import Away, street
from tests.integration.manager.test_registering import GW, PRICE_URN
from tests.unit.manager.words import registration

from canoa.transports.amqp import AmqpTransport
from canoa.vocabulary import AMQP

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.manager.nodes import Nodes


async def test_addresses_of_those_whose_ids_are_claimed_are_looked_at_side_by_side(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    async with street() as found:
        endpoints = [f"{found.url}/n{number}" for number in range(10)]
        await town.publish(*(registration("", endpoint=each, instance="first") for each in endpoints))
        await town.until(lambda: len(manager.catalogue.rows) == 10)

        await town.publish(*(registration("", endpoint=each, instance="second") for each in endpoints))

        await town.until(lambda: found.waiting == 10)
        for _ in endpoints:
            found.answer_one()
        await town.until(lambda: instances(manager) == {"second"})  # at the same address it is the same node's


async def test_where_nobody_can_be_looked_for_the_claim_alone_comes_again_later(memory_town: Town) -> None:
    town = memory_town
    manager = await town.start_manager()
    await town.listen(GW)
    await town.register(endpoint="", instance="first")
    await town.until(town.acks)

    manager.reaching.speak(AMQP, Away(town.broker))
    await town.publish(registration(endpoint="", instance="second", actions=[PRICE_URN]), registration("other"))
    await town.until(lambda: town.acks("other"))

    assert manager.catalogue.rows[GW].instance == "first"
    manager.reaching.speak(AMQP, AmqpTransport(town.broker))
    await town.until(lambda: manager.catalogue.rows[GW].instance == "second")  # one listens: the first is gone


def instances(manager: Nodes) -> set[str]:
    return {row.instance for row in manager.catalogue.rows.values()}
