"""A worker says which of its ways are closed, and all of them say it anew whenever that changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from canoa.vocabulary import AMQP, HTTP, MQTT
from canoa.worker import own_ways
from canoa.worker.own_ways import OwnWays
from canoa.worker.settings import WorkerSettings
from canoa.worker.uplinks.address import Address, http_address
from canoa.worker.uplinks.opening import ways

if TYPE_CHECKING:
    from canoa.worker.node import Node
    from canoa.worker.uplinks.port import Uplink


class Side:
    """A node, or an uplink: what is used of either."""

    def __init__(self, way: str = "") -> None:
        self.id = "gw-7"
        self.way = way
        self.is_listening = self.is_reachable = True
        self.is_leaving = False
        self.renewed = asyncio.Event()

    def renew(self) -> None:
        self.renewed.set()


def own(node: Side, *uplinks: Side, has_broker: bool = True) -> OwnWays:
    return OwnWays(cast("Node", node), cast("list[Uplink]", uplinks), has_broker=has_broker)


async def test_those_that_are_closed_are_named() -> None:
    node, mqtt, http = Side(), Side(MQTT), Side(HTTP)
    several = own(node, mqtt, http)
    closed = [several.closed()]
    node.is_listening = False
    closed.append(several.closed())
    mqtt.is_reachable = False
    closed.append(several.closed())

    assert closed == [(), (AMQP,), (AMQP, MQTT)]


async def test_of_one_way_alone_nothing_is_said() -> None:
    node, mqtt = Side(), Side(MQTT)
    node.is_listening = mqtt.is_reachable = False

    assert own(node).closed() == ()
    assert own(node, mqtt, has_broker=False).closed() == ()


async def test_whenever_a_way_closes_or_opens_all_of_them_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_ways, "LOOK_EVERY_S", 0.0)
    sides = node, mqtt, http = Side(), Side(MQTT), Side(HTTP)
    watching = asyncio.create_task(own(node, mqtt, http).watch())
    await asyncio.sleep(0)  # it has seen them all open

    for is_reachable in (False, True):
        mqtt.is_reachable = is_reachable
        async with asyncio.timeout(5):
            await asyncio.gather(*(side.renewed.wait() for side in sides))
        for side in sides:
            side.renewed.clear()
    node.is_leaving = True
    mqtt.is_reachable = False
    await asyncio.wait_for(watching, 5)

    assert not any(side.renewed.is_set() for side in sides)  # who leaves has left by all of them


@pytest.mark.parametrize(
    ("is_memory", "mqtt", "http", "said"),
    [
        (False, "", "", ()),
        (True, "mqtt://127.0.0.1", "", ()),
        (True, "", "127.0.0.1:0", (HTTP,)),
        (False, "mqtt://127.0.0.1", "", (AMQP, MQTT)),
        (False, "", "127.0.0.1:0", (AMQP, HTTP)),
        (True, "mqtt://127.0.0.1", "127.0.0.1:0", (MQTT, HTTP)),
        (False, "mqtt://127.0.0.1", "127.0.0.1:0", (AMQP, MQTT, HTTP)),
    ],
)
def test_every_combination_of_ways_is_one_node_s(is_memory: bool, mqtt: str, http: str, said: tuple[str, ...]) -> None:
    settings = WorkerSettings(mqtt=mqtt, http=http, manager_url="http://127.0.0.1:8420" if http else "")
    address: Address | None = http_address(settings) if http else None

    assert ways(address, settings, is_memory=is_memory) == said
    if address is not None:
        address.listener.close()
