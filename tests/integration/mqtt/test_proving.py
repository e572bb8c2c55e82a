"""A worker on RabbitMQ's MQTT plugin, which ends the link of whoever says what he may not."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.integration.mqtt.town import PASSWORD, through_rabbitmq
from tests.integration.pool.pool import sample, until

from canoa import Canoa
from canoa.doctor.rights import Role, command
from canoa.worker import proving
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canoa.testing import RabbitNode

WITHIN_S = 30.0
ANSWERS_ALONE = r"^sapparchi\.(nodes|task)\."


@pytest.fixture
def vhost(mqtt_node: RabbitNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(proving, "ANSWER_WITHIN_S", 0.5)
    vhost = mqtt_node.add_vhost()
    yield vhost
    mqtt_node.release_vhost(vhost)


def app_and_settings(url: str, node_id: str) -> tuple[Canoa, WorkerSettings]:
    app = Canoa("shop", broker="memory://")
    app.action(name="one")(lambda: 1)
    return app, WorkerSettings(node_id=node_id, mqtt=url, prove_after_s=0.3)


@pytest.mark.rabbitmq
async def test_a_worker_that_may_not_send_to_itself_does_not_lose_its_link_by_it_for_long(
    mqtt_node: RabbitNode, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    user = f"mute-of-{vhost}"
    mqtt_node.ctl("add_user", user, PASSWORD)
    mqtt_node.ctl(*shlex.split(command(Role.DEVICE, vhost=vhost, user=user))[1:])
    mqtt_node.ctl("set_topic_permissions", "-p", vhost, user, "amq.topic", ANSWERS_ALONE, ".*")
    app, settings = app_and_settings(through_rabbitmq(mqtt_node, vhost, user=user).mqtt_url, "gw-7")
    async with app.worker_with(settings):
        await until(lambda: "worker_cannot_prove_itself" in caplog.text, within_s=WITHIN_S)
        lost = caplog.text.count("mqtt_link_lost")

        await asyncio.sleep(3)  # it would have been cut a few times more
        assert caplog.text.count("mqtt_link_lost") <= lost + 1  # the last one may come after the word
    assert "worker_is_deaf" not in caplog.text
    await app.aclose()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("node_id", ["gw-7", "gw.7"])
async def test_a_worker_hears_itself_whatever_is_in_its_name(
    mqtt_node: RabbitNode, vhost: str, caplog: pytest.LogCaptureFixture, node_id: str
) -> None:
    """RabbitMQ hands over a dot as a slash."""
    app, settings = app_and_settings(through_rabbitmq(mqtt_node, vhost).mqtt_url, node_id)
    async with app.worker_with(settings) as worker:
        await asyncio.sleep(3)  # several times

        assert sample(worker, "canoa_node_deaf") == 0
    assert "worker_cannot_prove_itself" not in caplog.text
    await app.aclose()
