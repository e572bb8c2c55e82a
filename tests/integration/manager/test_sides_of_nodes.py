"""One node that registers by several ways at once: it is answered by each, kept as one, and closed one by one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.manager.test_registering import GW, chosen
from tests.unit.manager.words import registration
from tests.unit.transports.paper import PaperTopic

from canoa.broker.direct import DirectDelivery
from canoa.broker.port import Message
from canoa.errors import NodeIdTaken, StoreUnreachable
from canoa.execution import proof
from canoa.execution.proof import Proof
from canoa.manager import probing
from canoa.manager.claims import Reason
from canoa.manager.doors import Doors
from canoa.manager.sides import without
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK
from canoa.wire import sapparchi

if TYPE_CHECKING:
    from tests.integration.manager.town import Town

    from canoa.manager.nodes import Nodes

THREE = (AMQP, MQTT_LINK, HTTP)
BY = {MQTT_LINK: sapparchi.BY_MQTT_LINK, HTTP: sapparchi.BY_HTTP}


def words(
    *,
    closed: str = "",
    by: str = AMQP,
    ways: str = "AMQP,MQTT,HTTP",
    takes_canaries: bool = True,
    instance: str = "i1",
    link: int = 0,
    **said: Any,
) -> Message:
    headers: dict[str, Any] = {sapparchi.WAYS: ways, sapparchi.CANARIES: takes_canaries}
    headers |= {sapparchi.LINK: link} if link else {}
    headers |= {sapparchi.CLOSED: closed} if closed else {}
    headers |= {BY[by]: True} if by in BY else {}
    return registration(GW, instance=instance, headers=headers, **said)


def bare(**said: Any) -> Message:
    """By a device at a topic, over MQTT 3.1.1."""
    return registration(GW, headers={sapparchi.BY_MQTT_LINK: True}, **said)


class Sides:
    """A manager with a link to an MQTT broker, and one node that speaks to it."""

    def __init__(self, town: Town, manager: Nodes) -> None:
        self.manager = manager
        self.topic = PaperTopic()
        self.told: list[Message] = []  # by that link
        self._town = town
        manager.reaching.speak(MQTT_LINK, self.topic)
        manager.registrations.acks.tell_others = lambda _, message: self.told.append(message)

    def say(self, by: str, **said: Any) -> DirectDelivery:
        """Not through the broker."""
        return self.bring(words(by=by, **said))

    def bring(self, message: Message) -> DirectDelivery:
        delivery = DirectDelivery(message, lambda _: None)
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

    @property
    def instance(self) -> str | None:
        row = self.manager.catalogue.rows.get(GW)
        return None if row is None else row.instance

    @property
    def is_writing(self) -> bool:
        return self.manager.registrations._writing is not None

    def doors(self) -> Doors:
        """Of the same manager, over HTTP."""
        return Doors(
            self.manager.catalogue,
            on_registration=self.manager.registrations.on_delivery,
            on_result=lambda _: None,
            look_up=self.manager.caller.look_up,
        )


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


@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "last will"])
async def test_a_farewell_is_the_whole_nodes_also_where_one_of_its_topic_is_right_behind_it(
    memory_town: Town, sides: Sides, is_bare: bool
) -> None:
    await sides.join()

    sides.say(AMQP, actions=[])
    sides.bring(bare(actions=[]) if is_bare else words(by=MQTT_LINK, actions=[], closed="MQTT"))

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


async def test_what_its_mqtt_link_had_is_sent_again_when_that_is_another_though_it_never_seemed_closed(
    memory_town: Town, sides: Sides
) -> None:
    at_topic = {"closed": "AMQP", "takes_canaries": False}
    sides.say(MQTT_LINK, link=1, **at_topic)
    await memory_town.until(lambda: chosen(sides.manager) == GW)
    await memory_town.send_step(sides.manager)
    [request_id] = await memory_town.store.sent_steps(GW, limit=2)
    work = Message(body=b"", message_id=request_id)
    sides.manager.reaching.post(GW, [work], lambda *_: None, is_work=True)
    await sides.manager.stranded.look()
    assert sides.topic.sent == [request_id]

    sides.say(MQTT_LINK, link=2, **at_topic)

    await memory_town.until(lambda: sides.topic.sent == [request_id, request_id])


# --- Whose id it is ---------------------------------------------------------------------------------------


async def test_whoever_repeats_a_device_s_words_over_http_does_not_get_its_id(memory_town: Town, sides: Sides) -> None:
    sides.bring(bare())
    await memory_town.until(lambda: sides.instance == "")
    device = sides.manager.catalogue.rows[GW]

    forged = words(by=MQTT_LINK, instance="thief")  # as if it came from the topic
    with pytest.raises(StoreUnreachable):  # a worker of ours would come again, and not end
        await sides.doors().register(forged)
    with pytest.raises(NodeIdTaken):
        await sides.doors().register(words(instance="thief", type="another"))

    assert sides.manager.catalogue.rows[GW] == device
    assert sides.manager.registrations.refused[Reason.RIVAL] == 2


async def test_nor_does_one_whose_claim_waits_while_the_device_itself_speaks(memory_town: Town, sides: Sides) -> None:
    sides.bring(bare())
    await memory_town.until(lambda: sides.instance == "")
    sides.bring(words(by=HTTP, instance="thief"))
    own = sides.bring(bare())

    assert own.is_settled
    sides.bring(bare(type="Rust"))  # it differs, so it is put together with what waits
    await memory_town.until(lambda: not sides.is_writing)

    assert sides.instance == ""


async def test_a_worker_over_http_gets_its_topic_once_that_is_heard_over_mqtt_3(
    memory_town: Town, sides: Sides
) -> None:
    await sides.doors().register(words(by=HTTP, ways="MQTT,HTTP"))

    sides.bring(bare())

    await memory_town.until(lambda: sides.known == ((MQTT_LINK, HTTP), ()))
    assert sides.instance == "i1"


async def test_the_last_will_of_a_predecessor_does_not_take_the_place_of_what_waits(
    memory_town: Town, sides: Sides
) -> None:
    await sides.join()

    successor = sides.say(HTTP, instance="i2")
    will = sides.say(MQTT_LINK, closed="MQTT", actions=[], instance="i1")
    await memory_town.until(lambda: sides.instance == "i2")

    assert will.is_settled
    assert successor.error is None


async def test_who_posted_what_another_one_s_word_replaced_is_asked_to_come_again(sides: Sides) -> None:
    first = sides.say(HTTP, instance="i1")
    sides.say(MQTT_LINK, instance="i2")

    assert first.is_settled
    assert isinstance(first.error, StoreUnreachable)


async def test_what_guards_a_worker_is_not_told_to_all_the_others(memory_town: Town, sides: Sides) -> None:
    await sides.join()
    await memory_town.until(lambda: memory_town.acks() and sides.told)

    row = sides.manager.catalogue.rows[GW]
    assert {ack["token"] for ack in memory_town.acks()} == {""}
    assert all(row.token.encode() not in each.body for each in sides.told)
    assert all(row.instance not in each.headers.values() for each in sides.told)
    assert (await sides.doors().register(words(by=HTTP))).token == row.token != ""


async def test_managers_that_hear_of_one_start_by_different_ways_give_it_one_token(memory_town: Town) -> None:
    several = [Sides(memory_town, await memory_town.start_manager()) for _ in range(2)]

    acks = await asyncio.gather(*(each.doors().register(words(by=HTTP)) for each in several))

    assert len({ack.token for ack in acks}) == 1


async def test_a_last_will_is_no_sign_of_life(memory_town: Town, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    await sides.join()
    signs: list[str] = []
    monkeypatch.setattr(sides.manager.catalogue, "heard", lambda node_id, **_: signs.append(node_id))

    sides.bring(bare(actions=[]))
    await memory_town.until(lambda: sides.known == (THREE, (MQTT_LINK,)))

    assert signs == []


# --- Looking ----------------------------------------------------------------------------------------------


async def test_a_node_at_which_nobody_can_look_is_not_given_up(
    memory_town: Town, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "LOOK_EVERY_S", 0.0)
    both = {"ways": "AMQP,MQTT", "endpoint": "", "closed": "AMQP", "takes_canaries": False}
    sides.say(MQTT_LINK, **both)
    await memory_town.until(lambda: sides.known == ((AMQP, MQTT_LINK), (AMQP,)))
    await memory_town.send_step(sides.manager)

    sides.topic.is_up = False  # the manager's own link
    for _ in range(3):
        await sides.manager.prober.look()

    assert memory_town.lost == []
    assert chosen(sides.manager) == GW


async def test_what_a_node_says_while_its_queue_is_looked_at_is_not_written_over(
    memory_town: Town, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sides.join()
    manager = sides.manager
    row = manager.catalogue.rows[GW]

    async def seen(_: str) -> dict[str, int | None]:
        await manager.follower.put([without(row, (MQTT_LINK,))])
        return {AMQP: 0, HTTP: 1}

    monkeypatch.setattr(manager.reaching, "seen", seen)

    assert not await manager.canaries._closes_queue(row)
    assert sides.known == (THREE, (MQTT_LINK,))
