"""Tokens of the store: what each role may do, how long a token opens, and what happens while the store is away."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.api.world import AUTHORIZED, TOKEN, in_process
from tests.integration.keep.keeping import eventually

from canoa import Canoa
from canoa.api import roles, sse
from canoa.recorder import known_tokens
from canoa.recorder.token_desk import TokenDesk
from canoa.vocabulary import Role

if TYPE_CHECKING:
    import httpx
    from tests.integration.api.paper_desk import PaperDesk

    from canoa.store.sqlite import SqliteStore

TOKENS = "/api/v1/tokens"
EVENTS = "/api/v1/events"
WITHIN_S = 10.0

HERE = [
    (role, operation.split()[0], re.sub(r"{\w+(:path)?}", "x", operation.split()[1]))
    for role, operations in roles.OPERATIONS.items()
    for operation in operations
    if role is not Role.NODE and not operation.endswith(EVENTS)
]


def token_desk(desk: PaperDesk) -> TokenDesk:
    assert desk.tokens is not None
    return desk.tokens


async def shown(desk: PaperDesk, role: Role, *, name: str = "", expires_s: float | None = None) -> dict[str, str]:
    """The header of whoever has a new token of that role."""
    made = await token_desk(desk).create(name or role.value, role, expires_s=expires_s)
    return {"Authorization": f"Bearer {made.secret}"}


async def is_answered(api: httpx.AsyncClient, status: int, headers: dict[str, str]) -> bool:
    return (await api.get("/api/v1/tasks", headers=headers)).status_code == status


async def nobody_listens(desk: PaperDesk) -> bool:
    return not desk.listeners


# --- Roles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_do_what_its_row_says_and_nothing_else(
    api: httpx.AsyncClient, desk: PaperDesk, role: Role
) -> None:
    headers = await shown(desk, role)
    for needed, method, path in HERE:
        answer = await api.request(method, path, headers=headers)

        if roles.may(role, needed):
            assert answer.status_code not in (401, 403), (path, answer.text)
        else:
            assert (answer.status_code, answer.json()["error"]["type"]) == (403, "Forbidden"), path
            assert f"has the role {role}, and this needs {needed}" in answer.json()["error"]["message"]
            assert "www-authenticate" not in answer.headers
    assert desk.requests == []


async def test_what_a_role_may_not_do_is_not_done(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    body = {"action": "shop.resize"}
    for role in (Role.VIEWER, Role.NODE):
        headers = await shown(desk, role)
        assert (await api.post("/api/v1/tasks", json=body, headers=headers)).status_code == 403
        made = await api.post(TOKENS, json={"name": "mine", "role": "admin"}, headers=headers)
        assert made.status_code == 403
    assert desk.requests == []
    assert {each.name for each in await token_desk(desk).list()} == {"viewer", "node"}

    operator = await shown(desk, Role.OPERATOR)
    assert (await api.post("/api/v1/tasks", json=body, headers=operator)).status_code == 201
    assert len(desk.requests) == 1


async def test_a_browser_reads_the_documents_with_a_viewers_secret_as_password(
    api: httpx.AsyncClient, desk: PaperDesk
) -> None:
    secret = (await shown(desk, Role.VIEWER))["Authorization"].removeprefix("Bearer ")
    basic = {"Authorization": f"Basic {base64.b64encode(f'me:{secret}'.encode()).decode()}"}

    assert (await api.get("/docs", headers=basic)).status_code == 200
    assert (await api.get("/api/v1/tasks", headers=basic)).status_code == 401


async def test_the_document_names_the_role_of_every_operation(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path in roles.OPEN_PATHS | roles.NODE_PATHS:
                assert operation["security"] == []
                continue
            role = roles.needed(method.upper(), path)
            assert operation["security"] == [{"token": [role.value]}], path
            assert operation["description"].endswith(f"Needs the role `{role.value}`."), path
            assert "403" in operation["responses"], path
    assert "Needs the role <code>operator</code>" in (await api.get("/docs")).text


# --- Nodes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(roles.NODE_PATHS))
async def test_a_node_as_published_is_asked_for_no_token(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.post(path, json={}, headers={"Authorization": ""})

    assert answer.status_code not in (401, 403)


@pytest.mark.parametrize("path", sorted(roles.NODE_PATHS))
async def test_where_the_settings_say_so_a_node_shows_a_token(
    desk: PaperDesk, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_NODE_TOKENS", "true")
    async with in_process(Canoa("shop", broker="memory://"), desk) as api:
        assert (await api.post(path, json={}, headers={"Authorization": ""})).status_code == 401
        assert (await api.post(path, json={}, headers=await shown(desk, Role.VIEWER))).status_code == 403
        for role in (Role.NODE, Role.OPERATOR, Role.ADMIN):
            answer = await api.post(path, json={}, headers=await shown(desk, role))
            assert answer.status_code not in (401, 403), role
        assert (await api.post(path, json={}, headers=AUTHORIZED)).status_code not in (401, 403)


# --- How long a token opens -------------------------------------------------------------------------------


async def test_a_token_is_made_shown_and_revoked(api: httpx.AsyncClient) -> None:
    answer = await api.post(TOKENS, json={"name": "ci", "role": "viewer", "expires_s": 3600})
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    made = answer.json()
    headers = {"Authorization": f"Bearer {made['secret']}"}
    assert (await api.get("/api/v1/tasks", headers=headers)).status_code == 200

    listed = await api.get(TOKENS)
    assert [(each["name"], each["role"], each["state"]) for each in listed.json()] == [("ci", "viewer", "live")]
    assert made["secret"] not in listed.text

    revoked = await api.post(f"{TOKENS}/ci/revoke")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert (await api.get("/api/v1/tasks", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "ci"}, 422),
        ({"role": "viewer"}, 422),
        ({"name": "a b", "role": "viewer"}, 422),
        ({"name": "a\n", "role": "viewer"}, 422),
        ({"name": "ci", "role": "root"}, 422),
        ({"name": "ci", "role": "viewer", "expires_s": 0}, 422),
        ({"name": "ci", "role": "viewer", "expires_s": 1e12}, 422),
        ({"name": "ci", "role": "viewer", "secret": "mine"}, 422),
        ({"name": "taken", "role": "viewer"}, 409),
    ],
)
async def test_a_token_that_cannot_be_made_is_refused(
    api: httpx.AsyncClient, desk: PaperDesk, body: dict[str, Any], status: int
) -> None:
    await token_desk(desk).create("taken", Role.VIEWER)

    assert (await api.post(TOKENS, json=body)).status_code == status

    assert [each.name for each in await token_desk(desk).list()] == ["taken"]


@pytest.mark.parametrize("name", ["nobody", "a%20b", "%00", "x" * 200])
async def test_a_token_that_is_not_there_is_not_found(api: httpx.AsyncClient, name: str) -> None:
    answer = await api.post(f"{TOKENS}/{name}/revoke")

    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "UnknownToken")


async def test_a_token_that_has_expired_opens_nothing(api: httpx.AsyncClient, desk: PaperDesk) -> None:
    headers = await shown(desk, Role.VIEWER, expires_s=0.05)

    await eventually(lambda: is_answered(api, 401, headers))


async def test_what_another_process_makes_and_revokes_counts_here_soon(
    api: httpx.AsyncClient, token_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_tokens, "READ_EVERY_S", 0.02)
    elsewhere = TokenDesk(token_store)  # with what it knows for itself
    made = await elsewhere.create("ci", Role.VIEWER)
    headers = {"Authorization": f"Bearer {made.secret}"}

    await eventually(lambda: is_answered(api, 200, headers))
    await elsewhere.revoke("ci")
    await eventually(lambda: is_answered(api, 401, headers))


async def test_a_stream_of_events_ends_with_its_token(
    server: httpx.AsyncClient, desk: PaperDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.05)
    headers = await shown(desk, Role.VIEWER)
    async with server.stream("GET", EVENTS, headers=headers) as response, asyncio.timeout(WITHIN_S):
        lines = response.aiter_lines()
        assert await anext(lines) == ": listening"
        await token_desk(desk).revoke("viewer")
        desk.tell("accepted", task_id="t1", action="shop.resize")

        rest = [line async for line in lines]

    assert "event: accepted" not in rest
    await eventually(lambda: nobody_listens(desk))


async def test_while_the_store_is_away_no_token_opens_but_the_admins(
    api: httpx.AsyncClient, desk: PaperDesk, token_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = await shown(desk, Role.VIEWER)
    monkeypatch.setattr(known_tokens, "BELIEVED_S", 0.0)
    await token_store.aclose()

    for given in (headers, {"Authorization": "Bearer canoa_some-other-secret"}):
        answer = await api.get("/api/v1/tasks", headers=given)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "StoreUnreachable")
        assert answer.headers["retry-after"] == "1"
    assert (await api.get("/api/v1/tasks", headers={"Authorization": ""})).status_code == 401
    assert (await api.get("/api/v1/tasks", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200
    assert (await api.get("/healthz", headers={"Authorization": ""})).status_code == 200
