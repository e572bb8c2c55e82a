"""A node with several ways is reached by the best that is open; what one does not take goes by the next at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.manager.words import node
from tests.unit.transports.paper import Ways, nobody

from canoa.broker.port import Message
from canoa.errors import BrokerUnreachable, Unroutable
from canoa.transports.under_way import Place
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK, MQTT_UNHEARD, Layer, NodeId

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

GATEWAY = NodeId("gw-7")
THREE = (AMQP, MQTT_LINK, HTTP)


def gateway(**facts: object) -> NodeRow:
    return msgspec.structs.replace(node("gw-7"), **({"ways": THREE, "protocol": AMQP} | facts))


def ways_of(row: NodeRow) -> Ways:
    return Ways({row.node_id: row})


def asking(*ids: str) -> list[Message]:
    return [Message(body=b"", message_id=each) for each in ids]


async def test_what_one_way_does_not_take_goes_by_the_next_under_the_same_id() -> None:
    ways = ways_of(gateway())
    ways.amqp.says, ways.mqtt.says = BrokerUnreachable("no link"), nobody()

    outcomes = await ways.post(GATEWAY, *asking("a", "b"))

    assert outcomes == [None, None]
    assert (ways.amqp.sent, ways.mqtt.sent, ways.http.sent) == ([], [], ["a", "b"])


async def test_the_last_way_s_outcome_is_told_where_none_takes_it() -> None:
    ways = ways_of(gateway())
    ways.amqp.says = ways.mqtt.says = BrokerUnreachable("no link")
    ways.http.says = nobody()

    [outcome] = await ways.post(GATEWAY, *asking("a"))

    assert isinstance(outcome, Unroutable)


async def test_a_way_that_the_node_says_to_be_closed_is_not_tried() -> None:
    ways = ways_of(gateway(closed=(AMQP,)))

    await ways.post(GATEWAY, *asking("a"))

    assert (ways.amqp.sent, ways.mqtt.sent) == ([], ["a"])


async def test_where_all_are_closed_the_preferred_one_is_tried_all_the_same() -> None:
    ways = ways_of(gateway(closed=THREE))

    await ways.post(GATEWAY, *asking("a"))

    assert ways.amqp.sent == ["a"]


async def test_a_topic_that_was_never_heard_of_is_no_way() -> None:
    ways = ways_of(gateway(ways=(AMQP, MQTT_UNHEARD), closed=(AMQP,)))

    [outcome] = await ways.post(GATEWAY, *asking("a"))

    assert isinstance(outcome, Unroutable)


async def test_the_way_in_use_is_the_best_that_is_open_and_up() -> None:
    ways = ways_of(gateway())
    used = [ways.reaching.way(gateway())]
    ways.amqp.is_up = False
    used += [ways.reaching.way(gateway()), ways.reaching.way(gateway(closed=(MQTT_LINK,)))]
    ways.amqp.is_up = True
    used += [ways.reaching.way(gateway(closed=(AMQP,))), ways.reaching.way(gateway(ways=(HTTP,), protocol=HTTP))]

    assert used == [AMQP, MQTT_LINK, HTTP, MQTT_LINK, HTTP]


async def test_the_edge_has_its_own_order() -> None:
    row = gateway(layer=Layer.EDGE, ways=(MQTT_LINK, HTTP, AMQP), protocol=MQTT_LINK)

    assert ways_of(row).reaching.way(row) == MQTT_LINK


# --- What brokers keep -------------------------------------------------------------------------------------


async def test_work_that_a_broker_keeps_is_remembered_with_its_way_and_what_the_node_has_is_not() -> None:
    ways = ways_of(gateway())
    await ways.post(GATEWAY, *asking("a"))
    ways.amqp.says = BrokerUnreachable("no link")
    await ways.post(GATEWAY, *asking("b"))
    ways.mqtt.says = nobody()
    await ways.post(GATEWAY, *asking("c"))

    kept = ways.reaching.under_way
    assert {place: list(kept.at(place)) for place in kept.places()} == {
        Place(GATEWAY, AMQP): ["a"],
        Place(GATEWAY, MQTT_LINK): ["b"],
    }


async def test_nothing_is_remembered_of_nodes_with_one_way_and_of_what_is_no_work() -> None:
    alone = gateway(ways=(), protocol=AMQP)
    ways = ways_of(alone)
    await ways.post(GATEWAY, *asking("a"))
    several = ways_of(gateway())
    await several.post(GATEWAY, *asking("canary"), is_work=False)

    assert not ways.reaching.under_way
    assert not several.reaching.under_way


# --- Looking -----------------------------------------------------------------------------------------------


async def test_a_look_shows_who_is_there_by_each_way_where_one_can_look() -> None:
    ways = ways_of(gateway())
    ways.amqp.consumers, ways.http.consumers = 0, 1

    assert await ways.reaching.seen(GATEWAY) == {AMQP: 0, HTTP: 1}


async def test_ways_that_are_closed_or_down_are_not_looked_at() -> None:
    closed, down = ways_of(gateway(closed=(AMQP,))), ways_of(gateway())
    down.amqp.is_up = False

    assert await closed.reaching.seen(GATEWAY) == {HTTP: 1}
    assert await down.reaching.seen(GATEWAY) == {HTTP: 1}


async def test_where_nobody_can_look_now_it_is_said_why() -> None:
    ways = ways_of(gateway(ways=(AMQP, MQTT_LINK)))
    ways.amqp.is_up = False

    with pytest.raises(BrokerUnreachable):
        await ways.reaching.seen(GATEWAY)


async def test_a_node_may_be_hidden_behind_a_topic_that_is_open_and_up() -> None:
    ways = ways_of(gateway())
    hidden = [ways.reaching.may_be_hidden(row) for row in (gateway(), gateway(closed=(MQTT_LINK,)))]
    ways.mqtt.is_up = False
    hidden.append(ways.reaching.may_be_hidden(gateway()))

    assert hidden == [True, False, False]
