"""A node with several ways is reached by the best that is open; what one does not take goes by the next at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.manager.words import node
from tests.unit.transports.paper import Ways, nobody

from canoa.broker.port import Message
from canoa.errors import BrokerUnreachable, Unroutable, WrongUse
from canoa.transports.under_way import Place
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK, MQTT_UNHEARD, Layer, NodeId

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow

GATEWAY = NodeId("gw-7")
THREE = (AMQP, MQTT_LINK, HTTP)


def gateway(**facts: object) -> NodeRow:
    return msgspec.structs.replace(node("gw-7"), **({"ways": THREE, "protocol": AMQP, "instance": "i1"} | facts))


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


async def test_what_may_pass_on_one_way_is_told_whatever_the_others_say() -> None:
    ways = ways_of(gateway())
    ways.amqp.says, ways.mqtt.says, ways.http.says = nobody(), BrokerUnreachable("no link"), nobody()

    [outcome] = await ways.post(GATEWAY, *asking("a"))

    assert isinstance(outcome, BrokerUnreachable)  # its node may be there: it is not thrown out


async def test_a_message_that_one_way_cannot_carry_may_still_go_by_one_that_is_away() -> None:
    ways = ways_of(gateway())
    ways.amqp.says, ways.mqtt.says = BrokerUnreachable("no link"), WrongUse("too long a header")

    [outcome] = await ways.post(GATEWAY, *asking("a"))

    assert isinstance(outcome, BrokerUnreachable)


async def test_where_no_way_leaves_any_hope_the_last_one_s_outcome_is_told() -> None:
    ways = ways_of(gateway())
    ways.amqp.says = ways.mqtt.says = nobody()
    ways.http.says = Unroutable("the last")

    [outcome] = await ways.post(GATEWAY, *asking("a"))

    assert outcome is ways.http.says


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
        Place(GATEWAY, MQTT_LINK, "i1.0"): ["b"],
    }


async def test_nothing_is_remembered_of_nodes_with_one_way_and_of_what_is_no_work() -> None:
    alone = gateway(ways=(), protocol=AMQP)
    ways = ways_of(alone)
    await ways.post(GATEWAY, *asking("a"))
    several = ways_of(gateway())
    await several.post(GATEWAY, *asking("canary"), is_work=False)

    assert not ways.reaching.under_way
    assert not several.reaching.under_way


async def test_nothing_is_remembered_of_nodes_of_other_makes_which_may_run_it_twice() -> None:
    ways = ways_of(gateway(instance=""))

    await ways.post(GATEWAY, *asking("a"))

    assert ways.amqp.sent == ["a"]
    assert not ways.reaching.under_way


# --- Ways that failed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (gateway(closed=(MQTT_LINK,)), gateway()),
        (gateway(link=1), gateway(link=2)),
        (gateway(), gateway(instance="i2")),
    ],
)
async def test_a_way_that_failed_is_tried_at_once_when_the_node_opens_it_again(before: NodeRow, now: NodeRow) -> None:
    rows = {GATEWAY: msgspec.structs.replace(now, ways=(MQTT_LINK, HTTP), protocol=MQTT_LINK)}
    ways = Ways(rows)
    ways.mqtt.says = nobody()
    await ways.post(GATEWAY, *asking("a"))
    ways.mqtt.says = None
    await ways.post(GATEWAY, *asking("b"))
    assert (ways.mqtt.sent, ways.http.sent) == ([], ["a", "b"])

    ways.reaching.know(rows[GATEWAY], rows[GATEWAY])
    await ways.post(GATEWAY, *asking("c"))
    ways.reaching.know(rows[GATEWAY], before)
    await ways.post(GATEWAY, *asking("d"))

    assert (ways.mqtt.sent, ways.http.sent) == (["d"], ["a", "b", "c"])


async def test_what_a_way_takes_is_told_also_where_no_way_may_be_used_any_more() -> None:
    ways = ways_of(gateway())
    told: list[object] = []
    ways.reaching.post(GATEWAY, asking("a"), lambda _, outcome: told.append(outcome))
    for each in (ways.amqp, ways.mqtt, ways.http):
        each.may_be_used = False
    await asyncio.sleep(0)

    assert told == [None]


# --- What travels ----------------------------------------------------------------------------------------------


class Ledger:
    def __init__(self) -> None:
        self.sent_bytes = self.held_bytes = 0

    def sent(self, node: NodeRow, way: str, size_bytes: int, *, held_bytes: int) -> None:
        self.sent_bytes += size_bytes
        self.held_bytes += held_bytes


async def test_what_was_held_for_a_message_is_given_back_once_however_many_ways_it_tries() -> None:
    ledger = Ledger()
    ways = Ways({GATEWAY: gateway()}, meter=ledger)
    ways.amqp.says = ways.mqtt.says = nobody()
    message = Message(body=b"12345", message_id="a")

    await ways.post(GATEWAY, message)
    assert (ledger.sent_bytes, ledger.held_bytes) == (5, 5)
    await ways.post(GATEWAY, message, is_again=True)

    assert (ledger.sent_bytes, ledger.held_bytes) == (10, 5)


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
