"""`canoa doctor`: finds what is wrong, says the remedy, and names rights with which each role works."""

from __future__ import annotations

import json
import os
import pty
import shlex
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.acceptance.shell import CANOA, Shell, until

from canoa.testing import MosquittoNode, RabbitNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "correct-horse"
VHOST = "canoa doctor"
SHOP = '''
from pathlib import Path
from canoa import Canoa

app = Canoa("shop")


@app.action(retry=1)
async def flaky(path: str) -> str:
    """Fails the first time."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return "done"
    raise ValueError("not yet")


@app.action()
async def fail() -> None:
    raise ValueError("never")


@app.action(timeout=7200)
async def long() -> None: ...
'''

LATER = """
from shop import app, flaky

print(app.sync.call(flaky.using(after=0.2), "later"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shell]:
    """A folder with an app, and no broker named."""
    (tmp_path / "shop.py").write_text(SHOP)
    shell = Shell(tmp_path, folder=tmp_path)
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """With the management API, at a port of its own."""
    folder = tmp_path_factory.mktemp("doctor")
    with RabbitNode(folder, plugins=["rabbitmq_management"], schedulers=1) as node:
        node.ctl("add_vhost", VHOST)
        node.ctl("set_permissions", "-p", VHOST, "guest", ".*", ".*", ".*")
        yield node


def examined(shell: Shell, *args: str, code: int = 0, **env: str) -> dict[str, dict[str, Any]]:
    """The findings by what was looked at; of several, the last."""
    ended = shell.canoa("doctor", *args, "--json", **env)
    assert (ended.returncode, ended.stderr) == (code, ""), ended
    told = json.loads(ended.stdout)
    assert told["ok"] is (code == 0)
    return {each["check"]: each for each in told["findings"]}


# --- Without a broker ---------------------------------------------------------------------------------


def test_a_machine_without_anything_is_well(shop: Shell) -> None:
    ended = shop.canoa("doctor", "shop:app")

    assert (ended.returncode, ended.stderr) == (0, "")
    for line in ("ok       settings", "ok       broker", "ok       store", "ok       disk", "ok       clock"):
        assert line in ended.stdout
    assert not (shop.folder / ".canoa").exists()


def test_a_broker_that_is_away_is_a_problem_with_the_remedy(shop: Shell) -> None:
    told = examined(shop, "--broker", f"amqp://guest:{PASSWORD}@127.0.0.1:1/", code=1)

    assert told["broker"]["verdict"] == "problem"
    assert "127.0.0.1:1" in told["broker"]["found"]
    assert "check that it runs" in told["broker"]["found"]
    assert PASSWORD not in json.dumps(told)


def test_wrong_settings_are_told_and_the_rest_waits_for_them(shop: Shell) -> None:
    told = examined(shop, "shop:app", code=1, CANOA_HEARTBEAT_S="soon")

    assert told["settings"]["verdict"] == "problem"
    assert "broker" not in told


def test_a_wrong_target_or_address_is_wrong_use(shop: Shell) -> None:
    for args in (("nowhere:app",), ("--management", "host:15672")):
        ended = shop.canoa("doctor", *args)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_a_person_sees_colours_unless_there_shall_be_none(shop: Shell, no_color: str, is_coloured: bool) -> None:
    ours, theirs = pty.openpty()
    env = {"NO_COLOR": no_color} if no_color else {}
    process = shop.start("/bin/sh", "-c", f"{CANOA} doctor > {os.ttyname(theirs)}", TERM="xterm", **env)
    assert process.wait() == 0
    os.close(theirs)

    shown = os.read(ours, 65536)
    os.close(ours)

    assert b"settings" in shown
    assert (b"\x1b[" in shown) is is_coloured


# --- With one -----------------------------------------------------------------------------------------


@pytest.mark.rabbitmq
def test_a_broker_is_looked_at_through_its_management_api(shop: Shell, node: RabbitNode) -> None:
    assert node.management_url is not None
    args = ("shop:app", "--broker", node.url(VHOST), "--management", node.management_url)
    until(lambda: "plugins" in examined(shop, *args))  # it knows them some seconds after its start

    told = examined(shop, *args)

    assert "guest:***@" in told["broker"]["found"]
    assert "works: a message came back after" in told["broker"]["found"]
    assert told["broker version"]["found"].startswith("RabbitMQ ")
    assert "rabbitmq_management" in told["plugins"]["found"]
    assert told["permissions"]["found"] == "the user may act as client, worker, recorder, manager, device"
    assert told["clock"]["found"] == "as the broker's, within 2 s"
    assert told["time limits"]["verdict"] == "warning"
    assert "shop.long may run 7200 s" in told["time limits"]["found"]
    assert "consumer_timeout = 7260000" in told["time limits"]["remedy"]


@pytest.mark.rabbitmq
def test_without_the_management_api_the_rest_is_still_told(shop: Shell, node: RabbitNode) -> None:
    told = examined(shop, "--broker", node.url(VHOST), "--management", "http://127.0.0.1:1")

    assert told["broker version"]["verdict"] == "ok"
    assert "does not answer at http://127.0.0.1:1 (Connection refused)" in told["management"]["found"]
    assert told["clock"]["found"] == "steady; nobody there to compare it with"


@pytest.mark.rabbitmq
def test_an_alarm_at_the_broker_is_a_problem(shop: Shell, node: RabbitNode) -> None:
    assert node.management_url is not None
    node.set_memory_alarm(True)
    try:
        told = examined(shop, "--broker", node.url(VHOST), "--management", node.management_url, code=1)
    finally:
        node.set_memory_alarm(False)

    assert told["alarms"]["found"].startswith("memory of ")
    assert "no message came back" in told["broker"]["found"]


@pytest.mark.rabbitmq
def test_a_user_without_rights_is_a_problem_also_without_the_management_api(shop: Shell, node: RabbitNode) -> None:
    node.ctl("add_user", "nobody", PASSWORD)
    node.ctl("set_permissions", "-p", VHOST, "nobody", "^$", "^$", "^$")

    told = examined(shop, "--broker", _as_user(node, "nobody"), code=1)

    assert "lets us in, and no message came back" in told["broker"]["found"]
    assert "ACCESS_REFUSED" in told["broker"]["found"]
    assert PASSWORD not in json.dumps(told)


@pytest.mark.rabbitmq
def test_each_role_works_with_the_printed_rights_and_none_can_take_anothers_place(
    shop: Shell, node: RabbitNode, mosquitto: MosquittoNode
) -> None:
    urls = {role: _user_with_printed_rights(shop, node, role) for role in ("client", "worker", "recorder", "manager")}

    recorder = shop.start(str(CANOA), "recorder", "--store", "sqlite:///kept.db", CANOA_BROKER=urls["recorder"])
    recorder.wait_logged("recorder_ready")
    worker = shop.start(str(CANOA), "worker", "shop:app", CANOA_BROKER=urls["worker"])
    worker.wait_logged("worker_ready")

    def client(*args: str) -> str:
        ended = shop.canoa(*args, CANOA_BROKER=urls["client"])
        assert ended.returncode == 0, ended
        return ended.stdout

    assert client("call", "shop.flaky", json.dumps({"path": str(shop.folder / "called")})) == '"done"\n'
    later = shop.start(sys.executable, "-c", LATER, CANOA_BROKER=urls["client"])
    assert (later.wait(), later.output()) == (0, "done\n"), later.said
    kept = client("submit", "shop.flaky", json.dumps({"path": str(shop.folder / "kept")})).strip()
    assert client("result", kept, "--wait", "20") == '"done"\n'
    failed = client("submit", "shop.fail").strip()
    until(lambda: failed in client("dead", "list", "--json"))
    options = ("--store", "sqlite:///kept.db", "--port", "0")
    manager = shop.start(str(CANOA), "manager", *options, CANOA_BROKER=urls["manager"], CANOA_MQTT=mosquitto.url)
    manager.wait_logged("manager_ready")
    worker.wait_logged("node_registered")
    (shop.folder / "plan.yaml").write_text("plan: one\nsteps:\n  only: {action: shop.flaky}\n")
    routed = json.dumps({"path": str(shop.folder / "routed")})
    assert client("submit", "plan.yaml", routed, "--watch") == '"done"\n'
    for role in (
        "worker shop:app",
        "recorder --store sqlite:///other.db",
        "manager --store sqlite:///other.db --port 0",
    ):
        ended = shop.canoa(*role.split(), CANOA_BROKER=urls["client"])
        assert ended.returncode == 2, ended
        assert "ACCESS_REFUSED" in ended.stderr


def _user_with_printed_rights(shop: Shell, node: RabbitNode, role: str) -> str:
    """Its URL. The command is run as it was printed."""
    printed = shop.canoa("doctor", "shop:app", "--permissions", "--broker", node.url(VHOST))
    assert printed.returncode == 0, printed
    (line,) = [line for line in printed.stdout.splitlines() if f"canoa-{role} " in line]
    node.ctl("add_user", f"canoa-{role}", PASSWORD)
    node.ctl(*shlex.split(line)[1:])
    return _as_user(node, f"canoa-{role}")


def _as_user(node: RabbitNode, name: str) -> str:
    parts = urlsplit(node.url(VHOST))
    return parts._replace(netloc=f"{name}:{PASSWORD}@{parts.hostname}:{parts.port}").geturl()
