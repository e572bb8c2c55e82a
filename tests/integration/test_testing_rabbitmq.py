"""Private RabbitMQ nodes: quick to share, honest when they fail, and never left behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from canoa.errors import SettingError
from canoa.testing import PortTaken, RabbitFailed, RabbitMissing, RabbitNode, erl_call, free_port, rabbitmq_setup
from canoa.testing import rabbitmq_installation as installation
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def processes_of(node: RabbitNode) -> list[psutil.Process]:
    """Everything that runs on behalf of the node."""
    assert node.pid is not None
    leader = psutil.Process(node.pid).parents()[1]
    return [leader, *leader.children(recursive=True)]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def all_end(processes: list[psutil.Process], *, within_s: float = 5.0) -> bool:
    ends_at = time.monotonic() + within_s
    while any(map(lives, processes)) and time.monotonic() < ends_at:
        time.sleep(0.02)
    return not any(map(lives, processes))


@pytest.fixture
def node(rabbit_node: RabbitNode) -> Iterator[RabbitNode]:
    """The shared node, up again after the test whatever the test did to it."""
    rabbit_node.start()
    yield rabbit_node
    rabbit_node.start()


@contextmanager
def occupied(port: int) -> Iterator[None]:
    with socket.create_server((LOOPBACK, port)):
        yield


def test_every_test_gets_a_virtual_host_of_its_own_where_guest_may_do_everything(
    node: RabbitNode, rabbit_url: str
) -> None:
    vhost = rabbit_url.rpartition("/")[2]

    assert vhost != node.add_vhost()
    assert node.ctl("list_permissions", "--vhost", vhost, "--no-table-headers").split() == ["guest", ".*", ".*", ".*"]


def test_a_virtual_host_costs_less_than_half_a_second(node: RabbitNode) -> None:
    started = time.monotonic()

    names = [node.add_vhost() for _ in range(20)]

    assert len(set(names)) == 20
    assert (time.monotonic() - started) / len(names) < 0.5


def test_virtual_hosts_are_made_also_where_erlang_lacks_its_quick_program(
    node: RabbitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erl_call, "PROGRAM", "not-installed")

    names = [node.add_vhost() for _ in range(20)]

    assert set(names) <= set(node.ctl("list_vhosts").split())


def test_released_virtual_hosts_are_deleted_by_the_time_others_are_made(node: RabbitNode) -> None:
    released = node.add_vhost()
    node.release_vhost(released)

    for _ in range(20):
        node.release_vhost(node.add_vhost())

    assert released not in node.ctl("list_vhosts").split()


def test_a_deleted_virtual_host_is_gone_at_once(node: RabbitNode) -> None:
    vhost = node.add_vhost()

    node.delete_vhost(vhost)

    assert vhost not in node.ctl("list_vhosts").split()


def test_a_node_sees_the_plugins_it_asks_for_with_all_that_they_need_and_no_others(
    node: RabbitNode, tmp_path: Path
) -> None:
    installation.make(tmp_path, rabbitmq_setup.find_scripts(), ["rabbitmq_management"])

    seen = {path.name.partition("-")[0] for path in (tmp_path / "plugins").iterdir()}
    seen_by_node = {path.name.partition("-")[0] for path in (node.folder / "installation" / "plugins").iterdir()}

    assert {"rabbit", "rabbitmq_prelaunch", "rabbitmq_management", "rabbitmq_management_agent", "cowboy"} <= seen
    assert "rabbitmq_mqtt" not in seen
    assert "rabbit" in seen_by_node
    assert "rabbitmq_management" not in seen_by_node


def test_an_installation_of_another_make_is_used_as_it_is(tmp_path: Path) -> None:
    scripts, home = tmp_path / "whole" / "sbin", tmp_path / "own"
    scripts.mkdir(parents=True)
    (tmp_path / "whole" / "plugins").mkdir()
    (tmp_path / "whole" / "plugins" / "rabbit-5.0.0.ez").touch()

    installation.make(home, scripts, [])

    assert installation.environment(home) == {}


def test_a_node_listens_on_loopback_only(node: RabbitNode) -> None:
    listening = [
        connection.laddr
        for process in processes_of(node)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert node.amqp_port in {address.port for address in listening}
    assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}


def test_a_killed_node_is_gone_and_comes_back_at_the_same_address_with_its_data(node: RabbitNode) -> None:
    vhost, port, processes = node.add_vhost(), node.amqp_port, processes_of(node)

    node.kill()

    assert not node.is_running
    assert all_end(processes)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))

    node.start()

    assert node.amqp_port == port
    assert vhost in node.ctl("list_vhosts").split()


def test_a_restarted_node_is_another_process_at_the_same_address(node: RabbitNode) -> None:
    before, port, processes = node.pid, node.amqp_port, processes_of(node)

    node.restart()

    assert node.pid not in (None, before)
    assert node.amqp_port == port
    assert all_end(processes)
    assert "stopped" in node.log_path.read_text()  # it was asked, not killed


def test_the_memory_alarm_goes_on_and_off(node: RabbitNode) -> None:
    node.set_memory_alarm(True)
    assert "memory" in node.ctl("eval", "rabbit_alarm:get_alarms().")

    node.set_memory_alarm(False)
    assert node.ctl("eval", "rabbit_alarm:get_alarms().").strip() == "[]"


def test_a_refused_command_says_what_rabbitmq_said(node: RabbitNode) -> None:
    with pytest.raises(RabbitFailed, match=r"(?s)delete_vhost nowhere.*does not exist"):
        node.delete_vhost("nowhere")


STARTS_A_NODE = """
import sys
from pathlib import Path
from canoa.testing import RabbitNode

node = RabbitNode(Path(sys.argv[1]), schedulers=1)
node.start()
print(node.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.rabbitmq
def test_a_node_ends_with_the_process_that_started_it_however_that_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_NODE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        node = RabbitNode(tmp_path)
        processes = processes_of(node)

        owner.kill()

    assert all_end(processes)
    assert not node.is_running


@pytest.mark.rabbitmq
def test_a_node_that_cannot_start_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    node = RabbitNode(tmp_path, config={"no.such.setting": "1"})

    with pytest.raises(RabbitFailed, match=r"no\.such\.setting"):
        node.start()

    assert not node.is_running
    assert not [seen for seen in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(seen.info["cmdline"])]


def test_an_unknown_plugin_is_refused_before_anything_starts(tmp_path: Path) -> None:
    node = RabbitNode(tmp_path, plugins=["rabbitmq_teleport"])

    with pytest.raises(SettingError, match=r"rabbitmq_teleport.*rabbitmq_management"):
        node.start()


def test_a_taken_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("canoa.testing.rabbitmq._PORT_FREE_WITHIN_S", 0.0)
    port = free_port()

    with occupied(port), pytest.raises(PortTaken, match=f"{port}.*amqp"):
        RabbitNode(tmp_path, amqp_port=port).start()


def test_a_missing_rabbitmq_is_an_error_that_names_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_setup, "DEBIAN_SCRIPTS", tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(RabbitMissing, match="apt-get install rabbitmq-server"):
        RabbitNode(tmp_path).start()
