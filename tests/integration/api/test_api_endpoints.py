"""Nodes register over HTTP with an endpoint that managers may call, or hear why not."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest
from tests.integration.api.world import in_process

from canoa import Canoa
from canoa.manager.hosting import hosting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from canoa.manager.service import Manager

OWN_PORT = 8420
PASSWORD = "hush-hush"
REGISTER = "/sapparchi/nodes/register"


@asynccontextmanager
async def manager(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Manager]]:
    app = Canoa("shop", broker="memory://")
    async with (
        hosting(app, f"sqlite:///{folder}/canoa.db", own_ports=frozenset({OWN_PORT})) as hosted,
        in_process(app, hosted.desk) as client,
    ):
        yield client, hosted.manager
    await app.aclose()


def said(endpoint: str, *, actions: tuple[str, ...] = ("urn:sapparchi:Action:shop.resize",)) -> dict[str, Any]:
    body: dict[str, Any] = {"nodeId": "gw-7", "endpoint": endpoint, "layer": "FOG", "type": "bare"}
    return body | {"actions": list(actions), "forceRegister": False}


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://127.0.0.2:8430", "127.0.0.2 is not among node_endpoints=127.0.0.1,::1; add it there"),
        (f"http://127.0.0.1:{OWN_PORT}", "is where this manager itself listens"),
        (f"http://localhost:{OWN_PORT}", "is where this manager itself listens"),
        (f"http://me:{PASSWORD}@127.0.0.1:8430", "it has a user or a password in it"),
        ("ftp://127.0.0.1/", "its scheme is neither http nor https"),
    ],
)
async def test_a_node_that_could_be_reached_nowhere_else_is_refused_and_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, endpoint: str, why: str
) -> None:
    monkeypatch.setenv("CANOA_NODE_ENDPOINTS", "127.0.0.1,::1")
    async with manager(tmp_path) as (client, hosted):
        answer = await client.post(REGISTER, json=said(endpoint))

        assert answer.status_code == 422
        assert answer.json()["error"]["type"] == "EndpointRefused"
        assert why in answer.json()["error"]["message"]
        assert (await client.get("/api/v1/nodes")).json() == []
        assert (await client.post(REGISTER, json=said(endpoint, actions=()))).status_code == 200  # it leaves
        counted = generate_latest(hosted.registry).decode()

    assert 'canoa_registrations_refused_total{reason="endpoint"} 1.0' in counted
    assert re.search(r'canoa_endpoints_refused_total\{reason="(foreign|own|userinfo|scheme)"\} 1\.0', counted)
    assert caplog.text.count("endpoint_refused") == 1
    assert PASSWORD not in answer.text + caplog.text


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:8430", "http://localhost:8430"])
async def test_a_node_at_an_address_that_is_allowed_is_welcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("CANOA_NODE_ENDPOINTS", "127.0.0.1,::1")
    async with manager(tmp_path) as (client, _):
        answer = await client.post(REGISTER, json=said(endpoint))

        assert answer.status_code == 200
        (node,) = (await client.get("/api/v1/nodes")).json()
        assert (node["protocol"], node["state"], node["endpoint_refused"]) == ("HTTP", "here", "")


async def test_a_node_with_another_way_is_welcome_and_shown_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_NODE_ENDPOINTS", "none")
    async with manager(tmp_path) as (client, _):
        body = said("http://127.0.0.1:8430")
        answer = await client.post(REGISTER, json=body, headers={"canoa-ways": '"AMQP,HTTP"'})

        assert answer.status_code == 200
        (node,) = (await client.get("/api/v1/nodes")).json()
        assert (node["protocol"], node["state"]) == ("AMQP", "here")
        assert node["endpoint_refused"].startswith("127.0.0.1 is not among node_endpoints=none")
        (considered,) = (await client.get("/api/v1/catalogue/shop.resize/explanation")).json()["considered"]
        assert "its endpoint is not called: 127.0.0.1 is not among" in considered["why"]
