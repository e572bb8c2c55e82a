"""A link that may not listen where it should is none: it says so, and tries again until it may."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.broker.test_mqtt_link import Heard, address, running

from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.testing import MosquittoNode

if TYPE_CHECKING:
    import pytest

WITHIN_S = 30.0
OPEN, CLOSED = "town/news", "town/secrets"


def guarded(folder: Path) -> MosquittoNode:
    """By Mosquitto's own guard, which reads a file when it starts."""
    (guard,) = Path("/usr/lib").glob("*/mosquitto_dynamic_security.so")
    lines = f"plugin {guard}\nplugin_opt_config_file {folder}/rights.json\n"
    return MosquittoNode(folder, saves_changes=False, more=lines)


def allow(folder: Path, *, secrets: bool) -> None:
    rights = {
        "defaultACLAccess": dict.fromkeys(
            ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe"), True
        ),
        "anonymousGroup": "all",
        "groups": [{"groupname": "all", "roles": [{"rolename": "reader"}]}],
        "roles": [
            {
                "rolename": "reader",
                "acls": [{"acltype": "subscribeLiteral", "topic": CLOSED, "priority": 1, "allow": secrets}],
            }
        ],
    }
    (folder / "rights.json").write_text(json.dumps(rights))


async def test_a_link_that_is_made_anew_hears_what_it_heard(tmp_path: Path) -> None:
    heard = Heard()
    ready = asyncio.Event()

    async def on_ready() -> None:
        ready.set()

    with MosquittoNode(tmp_path, saves_changes=False) as mosquitto:
        client = MqttClient(address(mosquitto), client_id="reader", topics={OPEN: heard.on_delivery}, on_ready=on_ready)
        async with running(client.run()), asyncio.timeout(WITHIN_S):
            await ready.wait()
            ready.clear()

            client.link_anew()
            await ready.wait()

            client.post([OPEN], Message(body=b"hello"), heard.on_outcome)
            await heard.until(lambda: bool(heard.came))
    assert client.links == 2


async def test_a_link_whose_subscription_is_refused_is_down_and_says_so_and_comes_up_when_it_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    allow(tmp_path, secrets=False)
    heard = Heard()
    ready = asyncio.Event()

    async def on_ready() -> None:
        ready.set()

    with guarded(tmp_path) as mosquitto:
        topics = dict.fromkeys((OPEN, CLOSED), heard.on_delivery)
        client = MqttClient(address(mosquitto), client_id="reader", topics=topics, on_ready=on_ready)
        async with running(client.run()), asyncio.timeout(WITHIN_S):
            while f"does not let us listen to {CLOSED}" not in caplog.text:  # noqa: ASYNC110  # a log tells nobody
                await asyncio.sleep(0.02)
            assert not client.is_up
            assert not ready.is_set()

            mosquitto.stop()
            allow(tmp_path, secrets=True)
            mosquitto.start()
            await ready.wait()
            client.post([CLOSED], Message(body=b"psst"), heard.on_outcome)
            await heard.until(lambda: bool(heard.came))

    assert OPEN not in caplog.text
    assert [(topic, message.body) for topic, message in heard.came] == [(CLOSED, b"psst")]
