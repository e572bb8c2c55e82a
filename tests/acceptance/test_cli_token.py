"""`canoa token` as people use it: made here, shown elsewhere, revoked, in every process that serves the API."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Process, Shell, until

from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

ECHO = ["call", "depot.echo", '{"text": "hello"}']


@pytest.fixture
def home(offline: Shell, tmp_path: Path) -> Shell:
    """A folder of its own, in which `canoa up` may run."""
    offline.folder = tmp_path / "home"
    offline.folder.mkdir()
    offline.env["PYTHONPATH"] += f":{ROOT}"
    return offline


def start_up(home: Shell, **env: str) -> tuple[Process, str]:
    """Once it is ready, and where it answers."""
    up = home.start(str(CANOA), "up", DEPOT, "--port", "0", "--log-level", "info", **env)
    up.wait_logged("Ctrl-C")
    return up, (home.folder / ".canoa" / "address").read_text().strip()


def created(shell: Shell, *args: str, **env: str) -> str:
    """The secret."""
    made = shell.canoa("token", "create", *args, **env)
    assert made.returncode == 0, made.stderr
    secret = made.stdout.removesuffix("\n")
    assert re.fullmatch(r"canoa_[A-Za-z0-9_-]{32}", secret)
    assert secret not in made.stderr
    return secret


def listed(shell: Shell, *args: str) -> dict[str, dict[str, Any]]:
    found = shell.canoa("token", "list", "--json", *args)
    assert found.returncode == 0, found.stderr
    return {each["name"]: each for each in json.loads(found.stdout)}


def status(url: str, secret: str, *, method: str = "GET", path: str = "/api/v1/tasks") -> int:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    request = urllib.request.Request(url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            code: int = response.status
            return code
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_a_secret_opens_what_its_role_may_until_it_is_revoked(home: Shell, tmp_path: Path) -> None:
    up, url = start_up(home)
    viewer, operator = created(home, "guest"), created(home, "ci", "--role", "operator", "--expires", "30d")
    elsewhere = Shell(tmp_path, folder=tmp_path, env={"PYTHONPATH": home.env["PYTHONPATH"], "CANOA_API": url})

    assert elsewhere.canoa(*ECHO, CANOA_API_TOKEN=operator).stdout == '"hello"\n'
    assert elsewhere.canoa("tasks", CANOA_API_TOKEN=viewer).returncode == 0
    refused = elsewhere.canoa(*ECHO, CANOA_API_TOKEN=viewer)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the token 'guest' has the role viewer, and this needs operator" in refused.stderr
    for command in (["list"], ["create", "mine", "--role", "admin"], ["revoke", "guest"]):
        refused = elsewhere.canoa("token", *command, CANOA_API_TOKEN=operator)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "this needs admin" in refused.stderr

    revoked = home.canoa("token", "revoke", "ci")
    assert (revoked.returncode, revoked.stdout) == (0, "")
    assert "does not take our token" in elsewhere.canoa(*ECHO, CANOA_API_TOKEN=operator).stderr
    assert elsewhere.canoa("tasks", CANOA_API_TOKEN=viewer).returncode == 0
    assert home.canoa(*ECHO).returncode == 0  # with the token in its folder
    found = listed(home)
    assert {name: (each["role"], each["state"]) for name, each in found.items()} == {
        "ci": ("operator", "revoked"),
        "guest": ("viewer", "live"),
    }
    assert "token_created" in up.said
    assert not any(secret in up.said for secret in (viewer, operator))


def test_tokens_outlive_a_kill_and_the_list_says_when_each_was_used(home: Shell) -> None:
    up, url = start_up(home)
    secret = created(home, "guest")
    assert listed(home)["guest"]["used_at"] is None
    assert status(url, secret) == 200
    until(lambda: listed(home)["guest"]["used_at"] is not None)

    up.kill()
    _, url = start_up(home)

    assert status(url, secret) == 200
    assert status(url, secret, method="POST") == 403
    assert status(url, "") == status(url, f"{secret}x") == 401


def test_an_admin_token_makes_others(home: Shell, tmp_path: Path) -> None:
    _, url = start_up(home)
    admin = created(home, "root", "--role", "admin")
    settings = {"CANOA_API": url, "CANOA_API_TOKEN": admin}
    home.folder = tmp_path

    assert status(url, created(home, "guest", **settings)) == 200
    assert home.canoa("token", "revoke", "root", **settings).returncode == 0
    assert home.canoa("token", "list", **settings).returncode == 2


def test_a_token_made_in_the_store_itself_needs_no_api(home: Shell) -> None:
    store = ["--store", "sqlite:///.canoa/canoa.db"]
    before = created(home, "before", "--role", "operator", *store)
    _, url = start_up(home)
    assert status(url, before) == 200

    after = created(home, "after", *store)
    until(lambda: status(url, after) == 200)
    assert home.canoa("token", "revoke", "before", *store).returncode == 0
    until(lambda: status(url, before) == 401)

    assert {name: each["state"] for name, each in listed(home).items()} == {"after": "live", "before": "revoked"}
    assert listed(home, *store).keys() == {"after", "before"}


def test_a_token_expires_by_itself(home: Shell) -> None:
    _, url = start_up(home)
    secret = created(home, "brief", "--expires", "2s")

    until(lambda: status(url, secret) == 401)

    assert listed(home)["brief"]["state"] == "expired"
    assert status(url, created(home, "brief")) == 200  # the name is free again


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["create", "a b"], "cannot be called"),
        (["create", "ci", "--expires", "soon"], "is no time"),
        (["create", "ci", "--expires", "99999d"], "up to ten years"),
        (["create", "taken"], "canoa token revoke taken"),
        (["revoke", "nobody"], "no token 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_exit_2_and_says_why(home: Shell, args: list[str], said: str) -> None:
    store = ["--store", f"sqlite:///{home.folder}/canoa.db"]
    created(home, "taken", *store)

    run = home.canoa("token", *args, *store)
    assert (run.returncode, run.stdout) == (2, "")
    assert said in run.stderr

    as_json = home.canoa("token", *args, *store, "--json")
    assert as_json.returncode == 2
    assert said in json.loads(as_json.stdout)["error"]["message"]


def test_the_list_is_a_table_for_people(home: Shell) -> None:
    store = ["--store", f"sqlite:///{home.folder}/canoa.db"]
    assert "canoa token create NAME" in home.canoa("token", "list", *store).stderr
    made = json.loads(home.canoa("token", "create", "ci", "--role", "node", "--json", *store).stdout)
    assert (made["token"]["role"], made["token"]["expires_at"]) == ("node", None)

    lines = home.canoa("token", "list", *store).stdout.splitlines()

    assert lines[0].split() == ["token", "role", "state", "created", "expires", "used"]
    assert lines[-1].split()[:3] == ["ci", "node", "live"]
    assert made["secret"] not in "".join(lines)


def test_where_no_api_and_no_store_is_known_the_remedy_is_named(home: Shell) -> None:
    run = home.canoa("token", "list")

    assert (run.returncode, run.stdout) == (2, "")
    for remedy in ("CANOA_API", "--store"):
        assert remedy in run.stderr


@pytest.mark.rabbitmq
def test_what_one_process_makes_and_revokes_counts_in_every_other(online: Shell, tmp_path: Path) -> None:
    online.folder = tmp_path
    online.env |= {"CANOA_API_TOKEN": "the-same-on-every-machine", "CANOA_STORE": f"sqlite:///{tmp_path}/canoa.db"}
    recorders = [online.start(str(CANOA), "recorder", "--port", "0", "--log-format", "json") for _ in range(2)]
    for each in recorders:
        each.wait_logged("recorder_ready")
    urls = [next(event["url"] for event in each.events() if event["event"] == "api_ready") for each in recorders]
    assert all(LOOPBACK in url for url in urls)

    secret = created(online, "ci", "--role", "operator", CANOA_API=urls[0])
    assert status(urls[0], secret) == 200
    until(lambda: status(urls[1], secret) == 200)

    assert online.canoa("token", "revoke", "ci", CANOA_API=urls[1]).returncode == 0
    assert status(urls[1], secret) == 401
    until(lambda: status(urls[0], secret) == 401)
    assert status(urls[0], "the-same-on-every-machine") == 200
