"""A worker on MQTT alone finds out that it is deaf: it links anew, or ends loudly. A broker that merely keeps messages
back without a word, from the first on, does not make it think so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.pool.pool import sample, until
from tests.integration.routed.bare_manager import NODE

from canoa import Canoa
from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.errors import DeliveryUnknown, NodeDeaf
from canoa.testing import MosquittoNode
from canoa.testing.ports import LOOPBACK
from canoa.wire.topics import node_topics
from canoa.worker import proving
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from canoa.testing.pytest_plugin import ProxyFactory

CONTROL = "$CONTROL/dynamic-security/v1"
ROLE = "all"
HEARING, SAYING = "publishClientReceive", "publishClientSend"
MAY_CONTROL = {"acltype": "publishClientSend", "topic": "$CONTROL/#", "priority": 0, "allow": True}
WITHIN_S = 30.0


class Guarded:
    """A Mosquitto that may keep messages back from whoever listens."""

    def __init__(self, folder: Path) -> None:
        (guard,) = Path("/usr/lib").glob("*/mosquitto_dynamic_security.so")
        rights = {
            "defaultACLAccess": dict.fromkeys(
                ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe"), True
            ),
            "anonymousGroup": "everybody",
            "groups": [{"groupname": "everybody", "roles": [{"rolename": ROLE}]}],
            "roles": [{"rolename": ROLE, "acls": [MAY_CONTROL]}],
        }
        (folder / "rights.json").write_text(json.dumps(rights))
        lines = f"plugin {guard}\nplugin_opt_config_file {folder}/rights.json\n"
        self.node = MosquittoNode(folder, saves_changes=False, more=lines)

    async def keep_back(self) -> None:
        """What is sent to the node."""
        await self._order("addRoleACL", HEARING, priority=1, allow=False)

    async def let_through(self) -> None:
        await self._order("removeRoleACL", HEARING)

    async def refuse(self) -> None:
        """Whatever anybody wants to send to the node."""
        await self._order("addRoleACL", SAYING, priority=1, allow=False)

    async def _order(self, command: str, what: str, **more: Any) -> None:
        topic = node_topics(NODE)[1]
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        order = {"command": command, "rolename": ROLE, "acltype": what, "topic": topic, **more}
        address = MqttAddress(LOOPBACK, self.node.port, None, None, None)
        client = MqttClient(address, client_id="keeper")
        running = asyncio.create_task(client.run())
        async with asyncio.timeout(WITHIN_S):
            await until(lambda: client.is_up)
            client.post([CONTROL], Message(body=json.dumps({"commands": [order]}).encode()), told.set_result)
            assert await told is None or isinstance(told.result(), DeliveryUnknown)  # all links end with a change
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    monkeypatch.setattr(proving, "ANSWER_WITHIN_S", 0.5)
    guarded = Guarded(tmp_path)
    with guarded.node:
        yield guarded


def app_and_settings(url: str) -> tuple[Canoa, WorkerSettings]:
    app = Canoa("shop", broker="memory://")
    app.action(name="one")(lambda: 1)
    return app, WorkerSettings(node_id=NODE, mqtt=url, prove_after_s=0.3)


async def test_a_worker_on_mqtt_to_which_nothing_comes_proves_itself_without_a_word(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    app, settings = app_and_settings(guarded.node.url)
    async with app.worker_with(settings) as worker:
        await asyncio.sleep(1.5)  # several times

        assert sample(worker, "canoa_node_deaf") == 0
    assert "worker_is_deaf" not in caplog.text
    assert "worker_is_cut_off" not in caplog.text
    await app.aclose()


async def test_a_worker_on_mqtt_that_hears_nothing_any_more_says_so_and_ends(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    app, settings = app_and_settings(guarded.node.url)
    async with app.worker_with(settings) as worker:
        await asyncio.sleep(1)  # it has heard itself
        await guarded.keep_back()

        with pytest.raises(NodeDeaf):
            async with asyncio.timeout(WITHIN_S):
                await worker.wait_failed()
        assert sample(worker, "canoa_node_deaf") == 1
    assert caplog.text.count("worker_is_deaf") == 2  # before it linked anew, and after
    await app.aclose()


async def test_a_worker_on_mqtt_that_hears_nothing_for_a_while_recovers(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    app, settings = app_and_settings(guarded.node.url)
    async with app.worker_with(settings) as worker:
        await asyncio.sleep(1)  # it has heard itself
        await guarded.keep_back()
        await until(lambda: "worker_is_deaf" in caplog.text, within_s=WITHIN_S)
        await guarded.let_through()

        await until(lambda: "worker_hears_again" in caplog.text, within_s=WITHIN_S)
        assert sample(worker, "canoa_node_deaf") == 0
    await app.aclose()


@pytest.mark.parametrize("what", [Guarded.keep_back, Guarded.refuse])
async def test_a_worker_that_never_could_send_to_itself_says_so_and_is_not_deaf(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, what: Callable[[Guarded], Awaitable[None]]
) -> None:
    """Mosquitto says to speakers of MQTT 5 what they may not say, and to nobody what he may not hear."""
    await what(guarded)
    app, settings = app_and_settings(guarded.node.url)
    async with app.worker_with(settings) as worker:
        await until(lambda: "worker_cannot_prove_itself" in caplog.text, within_s=WITHIN_S)

        await asyncio.sleep(2)  # longer than a deaf one would last
        assert sample(worker, "canoa_node_deaf") == 0
    assert "worker_is_deaf" not in caplog.text
    assert "worker_is_cut_off" not in caplog.text
    await app.aclose()


async def test_a_worker_on_mqtt_that_is_cut_off_waits_and_is_not_deaf(
    guarded: Guarded, tcp_proxy: ProxyFactory, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = await tcp_proxy(guarded.node.url)
    app, settings = app_and_settings(proxy.via(guarded.node.url))
    async with app.worker_with(settings) as worker:
        await asyncio.sleep(1)  # it has heard itself
        proxy.cut()
        await until(lambda: "worker_is_cut_off" in caplog.text, within_s=WITHIN_S)
        proxy.restore()

        await until(lambda: "worker_hears_again" in caplog.text, within_s=WITHIN_S)
        assert sample(worker, "canoa_node_deaf") == 0
    assert "worker_is_deaf" not in caplog.text
    await app.aclose()
