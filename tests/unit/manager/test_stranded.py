"""What a broker keeps for a node that it no longer reaches goes there by the next way, if it is still out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from tests.unit.manager.words import node
from tests.unit.transports.paper import Ways, nobody

from canoa.broker.port import Message
from canoa.manager import stranded
from canoa.manager.stranded import Stranded
from canoa.vocabulary import AMQP, HTTP, MQTT_LINK, NodeId

if TYPE_CHECKING:
    from canoa.store.routed_port import NodeRow, RoutedStore

GATEWAY = NodeId("gw-7")


class Out:
    """What the store says to be out."""

    def __init__(self) -> None:
        self.ids = ["a", "b"]

    async def sent_steps(self, node_id: NodeId, *, limit: int) -> list[str]:
        return self.ids[:limit]


class Scene:
    """Two requests are out at a gateway, by its queue."""

    def __init__(self) -> None:
        self.rows: dict[NodeId, NodeRow] = {GATEWAY: node("gw-7", ways=(AMQP, MQTT_LINK, HTTP), instance="i1")}
        self.ways = Ways(self.rows)
        self.out = Out()
        self.stranded = Stranded(self.ways.reaching, cast("RoutedStore", self.out), self.rows)

    async def begin(self) -> None:
        await self.ways.post(GATEWAY, *(Message(body=b"", message_id=each) for each in ("a", "b")))
        await self.look()

    async def look(self) -> None:
        await self.stranded.look()
        for _ in range(5):  # turns of the loop, for as many ways
            await asyncio.sleep(0)

    def say_closed(self, *ways: str) -> None:
        self.say(closed=ways)

    def say(self, **facts: object) -> None:
        self.rows[GATEWAY] = msgspec.structs.replace(self.rows[GATEWAY], **facts)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(stranded, "AGAIN_AFTER_S", 0.0)
    scene = Scene()
    await scene.begin()
    return scene


async def test_what_waits_where_its_node_is_cut_off_is_sent_by_the_next_way_once(scene: Scene) -> None:
    scene.say_closed(AMQP)
    await scene.look()
    await scene.look()

    assert scene.ways.mqtt.sent == ["a", "b"]


async def test_nothing_is_sent_again_while_its_way_is_open(scene: Scene) -> None:
    scene.say_closed(MQTT_LINK)
    await scene.look()

    assert (scene.ways.mqtt.sent, scene.ways.http.sent) == ([], [])


async def test_what_was_answered_meanwhile_whoever_heard_it_is_not_sent_again(scene: Scene) -> None:
    scene.out.ids = ["b"]
    scene.say_closed(AMQP)
    await scene.look()

    assert scene.ways.mqtt.sent == ["b"]
    assert len(scene.ways.reaching.under_way) == 1


async def test_a_link_that_is_cut_for_a_moment_moves_nothing_and_one_that_stays_away_does(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ways.amqp.is_up = False
    await scene.look()
    assert scene.ways.mqtt.sent == []

    monkeypatch.setattr(stranded, "PATIENCE_S", 0.0)
    await scene.look()

    assert scene.ways.mqtt.sent == ["a", "b"]


async def test_it_goes_on_by_the_way_after_that_when_the_next_one_closes_too(scene: Scene) -> None:
    scene.say_closed(AMQP)
    await scene.look()
    scene.say_closed(AMQP, MQTT_LINK)
    await scene.look()

    assert (scene.ways.mqtt.sent, scene.ways.http.sent) == (["a", "b"], ["a", "b"])
    assert not scene.ways.reaching.under_way  # the node has them


async def test_what_no_way_takes_is_tried_again_later(scene: Scene) -> None:
    scene.say_closed(AMQP)
    scene.ways.mqtt.says = scene.ways.http.says = nobody()
    await scene.look()
    assert (scene.ways.mqtt.sent, scene.ways.http.sent) == ([], [])

    scene.ways.http.says = None
    await scene.look()

    assert scene.ways.http.sent == ["a", "b"]


# --- Links to an MQTT broker ----------------------------------------------------------------------------------


@pytest.fixture
async def at_topic(scene: Scene) -> Scene:
    """The two were sent by topic."""
    scene.say(closed=(AMQP,), link=1)
    await scene.look()
    assert scene.ways.mqtt.sent == ["a", "b"]
    return scene


@pytest.mark.parametrize("now", [{"link": 2}, {"instance": "i2"}])
async def test_what_a_link_had_that_is_another_by_now_is_sent_by_the_new_one_though_nobody_saw_it_closed(
    at_topic: Scene, now: dict[str, object]
) -> None:
    at_topic.say(**now)
    await at_topic.look()
    await at_topic.look()

    assert at_topic.ways.mqtt.sent == ["a", "b", "a", "b"]
    assert at_topic.ways.http.sent == []


async def test_it_goes_by_the_way_in_use_if_that_is_another(at_topic: Scene) -> None:
    at_topic.say(closed=(), link=2)
    await at_topic.look()

    assert at_topic.ways.amqp.sent == ["a", "b", "a", "b"]


async def test_a_new_link_moves_nothing_that_waits_in_the_queue(scene: Scene) -> None:
    scene.say(link=1)
    await scene.look()

    assert (scene.ways.amqp.sent, scene.ways.mqtt.sent) == (["a", "b"], [])


# --- Much that is out -----------------------------------------------------------------------------------------


async def test_what_is_out_beyond_the_first_page_is_sent_again_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded, "PAGE", 2)
    scene.out.ids = ["older-1", "older-2", "older-3", "a"]  # and b was answered
    scene.say_closed(AMQP)
    await scene.look()

    assert scene.ways.mqtt.sent == ["a"]
    assert len(scene.ways.reaching.under_way) == 1
