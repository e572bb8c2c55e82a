"""An MQTT broker that refuses our login: it is said at once what is wrong, and who has no other way ends over it."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.broker.test_mqtt_link import running

from canoa.broker import mqtt_client
from canoa.broker.mqtt_address import MqttAddress
from canoa.broker.mqtt_client import MqttClient
from canoa.broker.port import Message
from canoa.errors import BrokerRefusedLogin
from canoa.testing import MosquittoNode
from canoa.testing.ports import LOOPBACK
from canoa.worker.uplinks.mqtt import MqttUplink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 30.0
USER, PASSWORD = "gateway", "right"
REFUSED = (
    r"the MQTT broker at 127\.0\.0\.1:\d+ refuses the login: .*[Nn]ot authori.*; "
    r"check user and password of its address \(--mqtt, CANOA_MQTT\)"
)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[MosquittoNode]:
    """By a password."""
    set_password(tmp_path, PASSWORD)
    with MosquittoNode(tmp_path, saves_changes=False, more=f"password_file {tmp_path}/passwords\n") as node:
        yield node


def set_password(folder: Path, password: str) -> None:
    """For when it starts."""
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(folder / "passwords"), USER, password], check=True, timeout=30)


def address(node: MosquittoNode, password: str) -> MqttAddress:
    return MqttAddress(LOOPBACK, node.port, USER, password, None)


def uplink(node: MosquittoNode, password: str, *, is_alone: bool) -> MqttUplink:
    def said(**_: Any) -> Message:
        return Message(body=b"here")

    return MqttUplink(address(node, password), node_id="gw-7", said=said, is_lasting=False, is_alone=is_alone)


def ignored(_: object) -> None: ...


@pytest.mark.parametrize("is_old", [False, True], ids=["MQTT 5", "MQTT 3.1.1"])
async def test_a_refused_login_is_logged_once_and_tried_until_it_is_taken(
    guarded: MosquittoNode,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_old: bool,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(mqtt_client, "AGAIN_AFTER_S", 0.02)
    ready = asyncio.Event()

    async def on_ready() -> None:
        ready.set()

    client = MqttClient(address(guarded, "new"), client_id="manager", on_ready=on_ready)
    client._is_old = is_old
    async with running(client.run()), asyncio.timeout(WITHIN_S):
        while caplog.text.count("mqtt_login_still_refused") < 2:  # noqa: ASYNC110  # a log tells nobody
            await asyncio.sleep(0.02)
        guarded.stop()
        set_password(tmp_path, "new")
        guarded.start()
        await ready.wait()

    (told,) = [each for each in caplog.records if "mqtt_login_refused" in each.getMessage()]
    assert told.levelname == "ERROR"
    assert "check user and password" in caplog.text
    assert "right" not in caplog.text
    assert client._is_old == is_old


async def test_a_worker_with_no_other_way_hears_at_once_that_its_login_is_refused(guarded: MosquittoNode) -> None:
    alone = uplink(guarded, "wrong", is_alone=True)

    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(BrokerRefusedLogin, match=REFUSED):
            await alone.start(ignored)

    await alone.aclose()


async def test_a_worker_with_no_other_way_ends_where_a_login_that_was_taken_stays_refused(
    guarded: MosquittoNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_client, "AGAIN_AFTER_S", 0.02)
    monkeypatch.setattr(mqtt_client, "LOGIN_PATIENCE_S", 0.1)
    alone = uplink(guarded, PASSWORD, is_alone=True)
    async with asyncio.timeout(WITHIN_S):
        await alone.start(ignored)
        guarded.stop()
        set_password(tmp_path, "another")
        guarded.start()

        with pytest.raises(BrokerRefusedLogin, match=REFUSED):
            await asyncio.gather(*alone.duties())

    await alone.aclose()


async def test_a_worker_with_another_way_goes_on_by_that_while_its_login_is_refused(
    guarded: MosquittoNode, caplog: pytest.LogCaptureFixture
) -> None:
    besides = uplink(guarded, "wrong", is_alone=False)
    async with asyncio.timeout(WITHIN_S):
        await besides.start(ignored)
        while "mqtt_login_refused" not in caplog.text:  # noqa: ASYNC110  # a log tells nobody
            await asyncio.sleep(0.02)
        (duty,) = [asyncio.ensure_future(each) for each in besides.duties()]
        await asyncio.wait([duty], timeout=0.2)

    assert not duty.done()
    assert not besides.is_reachable
    duty.cancel()
    await besides.aclose()
