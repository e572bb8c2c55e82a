"""Who is let in: with the token, under a name of ours."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from tests.integration.api.world import TOKEN

from canoa.api.guard import Guard, checked_token
from canoa.errors import SettingError

if TYPE_CHECKING:
    import httpx
    from starlette.types import Receive, Scope, Send
    from tests.integration.api.paper_desk import PaperDesk

    from canoa import Canoa

GUARDED = [
    ("POST", "/api/v1/tasks"),
    ("POST", "/api/v1/tasks/batch"),
    ("GET", "/api/v1/tasks"),
    ("GET", "/api/v1/tasks/x"),
    ("GET", "/api/v1/tasks/x/result"),
    ("POST", "/api/v1/tasks/x/cancel"),
    ("GET", "/api/v1/tasks/x/steps"),
    ("GET", "/api/v1/tasks/x/steps/{step}"),
    ("POST", "/api/v1/tasks/x/rerun"),
    ("GET", "/api/v1/plans"),
    ("GET", "/api/v1/plans/{name}"),
    ("PUT", "/api/v1/plans/{name}"),
    ("GET", "/api/v1/plans/{name}/steps/{step}/explanation"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes/{node_id}"),
    ("GET", "/api/v1/catalogue"),
    ("GET", "/api/v1/catalogue/{action}/explanation"),
    ("GET", "/api/v1/dead"),
    ("GET", "/api/v1/dead/x"),
    ("POST", "/api/v1/dead/redrive"),
    ("GET", "/api/v1/actions"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens/{name}/revoke"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("GET", "/healthz/"),
]


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_without_the_token_nothing_is_told(api: httpx.AsyncClient, method: str, path: str) -> None:
    for given in ("", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Token {TOKEN}", "Bearer \xff", TOKEN):
        headers = {"Authorization": given.encode("latin-1")}
        answer = await api.request(method, path, headers=headers)  # type: ignore[arg-type]

        assert answer.status_code == 401, given
        assert answer.headers["www-authenticate"].startswith('Bearer realm="canoa"')
        assert answer.json()["error"]["type"] == "Unauthorized"


def test_every_path_of_the_api_was_tried_without_the_token(app: Canoa, desk: PaperDesk) -> None:
    from canoa.api.app import Served, new_api
    from canoa.api.readiness import Readiness

    readiness = Readiness(lambda: app.new_broker("test"))
    api = new_api(Served(app=app, readiness=readiness, desk=desk), hosts=["*"], token=TOKEN)

    paths = {(method.upper(), path) for path, methods in api.openapi()["paths"].items() for method in methods}

    tried = {(method, path.replace("/x", "/{task_id}")) for method, path in GUARDED}
    of_nodes = {("POST", "/sapparchi/nodes/register"), ("POST", "/sapparchi/results")}
    assert paths - tried == {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/actuator/health"), *of_nodes}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_the_probes_need_no_token(api: httpx.AsyncClient, path: str) -> None:
    assert (await api.get(path, headers={"Authorization": ""})).status_code == 200


async def test_a_node_asks_without_a_token_whether_a_manager_works(api: httpx.AsyncClient) -> None:
    asked = await api.get("/actuator/health", headers={"Authorization": ""})

    assert asked.status_code == 503
    assert asked.json() == {"status": "DOWN", "reason": "no manager runs here"}


async def test_a_browser_may_read_the_documents_with_the_token_as_password(api: httpx.AsyncClient) -> None:
    asked = await api.get("/docs", headers={"Authorization": ""})
    assert "Basic realm=" in asked.headers["www-authenticate"]

    for path in ("/docs", "/openapi.json"):
        assert (await api.get(path, headers={"Authorization": basic(TOKEN)})).status_code == 200
        assert (await api.get(path, headers={"Authorization": basic("wrong")})).status_code == 401
        assert (await api.get(path, headers={"Authorization": "Basic !"})).status_code == 401


async def test_a_password_opens_nothing_else(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/tasks", headers={"Authorization": basic(TOKEN)})

    assert answer.status_code == 401
    assert "Basic" not in answer.headers["www-authenticate"]


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/tasks"])
async def test_a_page_under_another_name_cannot_reach_us(server: httpx.AsyncClient, path: str) -> None:
    for host in ("evil.example", "localhost.evil.example", "evil.example:8420", "[::2]", "", "[", "127.0.0.1@evil"):
        answer = await server.get(path, headers={"Host": host})

        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "WrongHost"), host
    for host in ("localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:8420"):
        assert (await server.get(path, headers={"Host": host})).status_code == 200, host


async def reached(host: str, hosts: list[str]) -> bool:
    is_reached = False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal is_reached
        is_reached = True

    async def ignore(*_: object) -> None: ...

    scope = {"type": "http", "path": "/healthz", "headers": [(b"host", host.encode())]}
    await Guard(app, hosts=hosts, token=TOKEN)(scope, ignore, ignore)  # type: ignore[arg-type]
    return is_reached


async def test_names_may_be_allowed_by_their_ending() -> None:
    assert await reached("a.example.com", ["*.example.com"])
    assert not await reached("example.com", ["*.example.com"])
    assert not await reached("badexample.com", ["*.example.com"])
    assert await reached("anything.else", ["*"])


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "with a blank in it", "with-ümläuts-inside", "line\nbreak-inside-it"]
)
def test_a_token_that_cannot_guard_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SettingError) as refusal:
        checked_token(token)

    assert not token or token not in str(refusal.value)


async def test_no_page_of_another_origin_may_read_an_answer(api: httpx.AsyncClient) -> None:
    answer = await api.get("/api/v1/tasks", headers={"Origin": "http://evil.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]
