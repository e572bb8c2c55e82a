"""What is no address is said to be none, before anything listens or connects."""

from __future__ import annotations

import pytest

from canoa.broker.mqtt_address import mqtt_address
from canoa.errors import SettingError
from canoa.settings import Settings
from canoa.worker.settings import WorkerSettings
from canoa.worker.uplinks.address import http_address


@pytest.mark.parametrize("http", ["8430", ":8430", "localhost", "127.0.0.1:http", "127.0.0.1:65536"])
def test_a_place_to_listen_at_has_a_host_and_a_port(http: str) -> None:
    settings = WorkerSettings(http=http, manager_url="http://127.0.0.1:8420")

    with pytest.raises(SettingError, match="is not host:port"):
        http_address(settings)


@pytest.mark.parametrize("url", ["http://localhost:1883", "localhost", "localhost:1883", "mqtt://", "mqtt://host:port"])
def test_an_mqtt_broker_has_an_mqtt_address(url: str) -> None:
    with pytest.raises(SettingError, match="write mqtt://"):
        mqtt_address(url, Settings())


def test_a_broker_that_names_no_port_is_at_the_usual_one() -> None:
    assert mqtt_address("mqtt://plant", Settings()).port == 1883
    assert mqtt_address("mqtt://plant:1", Settings()).port == 1
