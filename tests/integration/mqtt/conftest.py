"""Both kinds of MQTT broker: RabbitMQ's plugin, and a Mosquitto that RabbitMQ knows nothing of."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from tests.integration.dispatch.conftest import memory_site
from tests.integration.dispatch.site import Site
from tests.integration.mqtt.town import PASSWORD, Town, through_mosquitto, through_rabbitmq

from canoa.doctor.rights import Role, command
from canoa.testing import MosquittoNode, RabbitNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["memory_site", "mqtt_node", "site", "town"]


@pytest.fixture(scope="session")
def mqtt_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A RabbitMQ that also speaks MQTT."""
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq"), plugins=["rabbitmq_mqtt"], schedulers=1) as node:
        yield node


@pytest.fixture(params=["rabbitmq", "mosquitto"])
def town(request: pytest.FixtureRequest, tmp_path: Path, mqtt_node: RabbitNode) -> Iterator[Town]:
    vhost = mqtt_node.add_vhost()
    if request.param == "rabbitmq":
        yield through_rabbitmq(mqtt_node, vhost, user=device_user(mqtt_node, vhost))
    else:
        (tmp_path / "mosquitto").mkdir()
        with MosquittoNode(tmp_path / "mosquitto") as mosquitto:
            yield through_mosquitto(mqtt_node.url(vhost), mosquitto)
    mqtt_node.release_vhost(vhost)


def device_user(node: RabbitNode, vhost: str) -> str:
    """One that may do what devices need to, and no more."""
    user = f"device-of-{vhost}"
    node.ctl("add_user", user, PASSWORD)
    node.ctl(*shlex.split(command(Role.DEVICE, vhost=vhost, user=user))[1:])
    return user


@pytest.fixture
async def site(town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """Whose managers know the town's broker for devices, if it has one."""
    if town.is_own:
        monkeypatch.setenv("CANOA_MQTT", town.mqtt_url)
    async with Site(town.broker_url, f"sqlite:///{tmp_path}/canoa.db") as site:
        yield site
