"""One node that registers by several ways at once: it is answered by each, kept as one, and closed one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.manager.test_registering import GW, chosen
from tests.unit.manager.words import registration
from tests.unit.transports.paper import PaperTopic

from canoa.broker.direct import DirectDelivery
from canoa.execution import proof
from canoa.execution.proof import Proof
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.broker.port import Message
    from canoa.manager.nodes import Nodes

THREE = (AMQP, MQTT_LINK, HTTP)
BY = {MQTT_LINK: sapparchi.BY_MQTT_LINK, HTTP: sapparchi.BY_HTTP}


def words(
    *, closed: str = "", by: str = AMQP, ways: str = "AMQP,MQTT,HTTP", takes_canaries: bool = True, **said: Any
) -> Message:
    headers: dict[str, Any] = {sapparchi.WAYS: ways, sapparchi.CANARIES: takes_canaries}
    headers |= {sapparchi.CLOSED: closed} if closed else {}
    headers |= {BY[by]: True} if by in BY else {}
    return registration(GW, instance="i1", headers=headers, **said)


class Sides:
    """A manager with a link to an MQTT broker, and one node that speaks to it."""

    def __init__(self, town: Town, manager: Nodes) -> None:
        self.manager = manager
        self.topic = PaperTopic()
        self.told: list[str] = []  # by that link
        self._town = town
        manager.reaching.speak(MQTT_LINK, self.topic)
        manager.registrations.acks.tell_others = lambda name, _: self.told.append(name)

    def say(self, by: str, **said: Any) -> DirectDelivery:
        """Not through the broker."""
        delivery = DirectDelivery(words(by=by, **said), lambda _: None)
        self.manager.registrations.on_delivery(delivery)
        return delivery

    async def say_by_queue(self, **said: Any) -> None:
        await self._town.publish(words(**said))

    async def join(self) -> None:
        """By all three."""
        self.say(MQTT_LINK)
        await self.say_by_queue()
        await self._town.until(lambda: self.known == (THREE, ()))

    @property
    def known(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Its ways, and those that are closed."""
        row = self.manager.catalogue.rows.get(GW)
        return ((), ()) if row is None else (row.all_ways, row.closed)


@pytest.fixture
async def sides(memory_town: Town) -> Sides:
    return Sides(memory_town, await memory_town.start_manager())


async def test_a_node_that_registers_by_all_its_ways_at_once_is_answered_by_each(
    memory_town: Town, sides: Sides
) -> None:
    by_topic, by_post = sides.say(MQTT_LINK), sides.say(HTTP)
    await sides.say_by_queue()
    await memory_town.until(lambda: memory_town.acks() and sides.told)

    assert sides.known == (THREE, ())
    assert (by_topic.is_settled, by_post.is_settled) == (True, True)
    assert chosen(sides.manager) == GW


async def test_after_the_first_word_what_its_other_ways_say_is_known_and_costs_no_write(
    memory_town: Town, sides: Sides
) -> None:
    await sides.join()
    version = sides.manager.catalogue.rows[GW].version

    deliveries = [sides.say(by) for by in (HTTP, MQTT_LINK, HTTP)]
    await sides.say_by_queue()

    assert all(each.is_settled for each in deliveries)
    assert sides.manager.catalogue.rows[GW].version == version


async def test_its_last_will_closes_one_way_and_the_node_stays(memory_town: Town, sides: Sides) -> None:
    await sides.join()

    sides.say(MQTT_LINK, closed="MQTT", actions=[])
    await memory_town.until(lambda: sides.known == (THREE, (MQTT_LINK,)))
    assert chosen(sides.manager) == GW

    sides.say(MQTT_LINK)
    await memory_town.until(lambda: sides.known == (THREE, ()))


async def test_a_last_will_right_behind_a_registration_does_not_take_its_place(memory_town: Town, sides: Sides) -> None:
    sides.say(MQTT_LINK)
    sides.say(MQTT_LINK, closed="MQTT", actions=[])

    await memory_town.until(lambda: sides.known == (THREE, (MQTT_LINK,)))
    assert chosen(sides.manager) == GW


async def test_a_node_is_gone_when_all_its_ways_are_closed_and_back_with_its_next_word(
    memory_town: Town, sides: Sides
) -> None:
    both = {"ways": "AMQP,MQTT", "endpoint": ""}
    sides.say(MQTT_LINK, closed="AMQP", **both)
    await memory_town.until(lambda: sides.known == ((AMQP, MQTT_LINK), (AMQP,)))
    assert chosen(sides.manager) == GW

    sides.say(MQTT_LINK, closed="MQTT", actions=[], **both)
    await memory_town.until(lambda: chosen(sides.manager) is None)
    row = sides.manager.catalogue.rows[GW]
    assert (row.closed, row.proof) == ((AMQP, MQTT_LINK), Proof.CUT_OFF)


async def test_a_farewell_by_any_way_is_the_whole_nodes(memory_town: Town, sides: Sides) -> None:
    await sides.join()

    sides.say(HTTP, actions=[])

    await memory_town.until(lambda: not sides.manager.catalogue.rows[GW].actions)


async def test_a_canary_goes_by_the_way_in_use(memory_town: Town, sides: Sides) -> None:
    await sides.join()
    sides.say(HTTP, closed="AMQP")

    await memory_town.until(lambda: sides.topic.sent)

    assert sapparchi.canary_node(sides.topic.sent[0]) == GW


async def deserted(town: Town, sides: Sides, *, takes_canaries: bool) -> None:
    """Joined by its queue and its topic, with work out; then nobody listens on the queue any more."""
    both = {"ways": "AMQP,MQTT", "endpoint": "", "takes_canaries": takes_canaries}
    listening = await town.listen(GW)
    sides.say(MQTT_LINK, **both)
    await sides.say_by_queue(**both)
    await town.until(lambda: sides.known == ((AMQP, MQTT_LINK), ()))
    await town.send_step(sides.manager)
    await listening.cancel()


@pytest.mark.parametrize("takes_canaries", [False, True])
async def test_a_queue_on_which_nobody_listens_is_closed_where_the_node_may_be_elsewhere(
    memory_town: Town, sides: Sides, takes_canaries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if takes_canaries:  # they find it, and not the look at steps that are out
        monkeypatch.setattr(sides.manager.prober, "look", asyncio.Event().wait)
        monkeypatch.setattr(proof, "ANSWER_WITHIN_S", 0.4)

    await deserted(memory_town, sides, takes_canaries=takes_canaries)

    await memory_town.until(lambda: sides.known == ((AMQP, MQTT_LINK), (AMQP,)))
    assert memory_town.lost == []
    assert chosen(sides.manager) == GW
