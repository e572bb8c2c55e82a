"""`canoa worker` from its start to the loss of its broker: what it says, what it serves, how it ends."""

from __future__ import annotations

import re
import signal
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from tests.acceptance.shell import CANOA, DEPOT, Shell

from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from canoa.testing import RabbitNode

HELLO = '{"text": "hello"}'


def calls_are_answered(shell: Shell) -> bool:
    called = shell.canoa("call", "depot.echo", HELLO, "--timeout", "20")
    return (called.returncode, called.stdout) == (0, '"hello"\n')


# --- Starting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere:app"], "no module 'nowhere'"),
        ([DEPOT], "CANOA_BROKER"),
        ([DEPOT, "--broker", "ftp://depot"], "use amqp://"),
        ([DEPOT, "--concurrency", "0"], "--concurrency"),
        ([DEPOT, "--layer", "basement"], "--layer"),
        ([DEPOT, "--broker", "amqp://nowhere", "--node-id", "gw/7"], "use 1 to 128 letters"),
        ([DEPOT, "--broker", "amqp://nowhere", "--site", "a\nb"], "can be printed"),
        ([DEPOT, "--log-level", "loud"], "--log-level"),
        ([DEPOT, "--metrics", "here"], "write --metrics 127.0.0.1:9420"),
    ],
)
def test_wrong_use_is_exit_2_and_names_value_or_remedy(offline: Shell, args: list[str], says: str) -> None:
    worker = offline.canoa("worker", *args)

    assert (worker.returncode, worker.stdout) == (2, "")
    assert says in worker.stderr
    assert "Traceback" not in worker.stderr


def test_a_module_that_cannot_be_imported_shows_where(offline: Shell, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_library_that_is_missing\n")
    offline.folder = tmp_path

    worker = offline.canoa("worker", "broken:app")

    assert worker.returncode == 1
    assert 'broken.py", line 1' in worker.stderr
    assert "No module named 'a_library_that_is_missing'" in worker.stderr


def test_a_broker_that_does_not_come_within_the_wait_is_exit_1(offline: Shell) -> None:
    url = f"amqp://{LOOPBACK}:{free_port()}/"

    worker = offline.canoa("worker", DEPOT, "--broker", url, "--wait", "1.5", "--log-format", "json")

    assert (worker.returncode, worker.stdout) == (1, "")
    assert worker.stderr.count("broker_not_there_yet") == 1
    assert "error: no link to the broker" in worker.stderr
    assert "Traceback" not in worker.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_broker(offline: Shell, number: signal.Signals) -> None:
    worker = offline.start(str(CANOA), "worker", DEPOT, "--broker", f"amqp://{LOOPBACK}:{free_port()}/")
    worker.wait_logged("broker_not_there_yet")

    worker.send(number)

    assert worker.wait() == 0
    assert "Traceback" not in worker.said


# --- Running ----------------------------------------------------------------------------------------


def test_a_worker_logs_json_lines_and_prints_nothing_else(online: Shell) -> None:
    worker = online.start_worker("--node-id", "depot-1")
    worker.send(signal.SIGTERM)

    assert (worker.wait(), worker.output()) == (0, "")
    lines = worker.said.splitlines()
    assert len(worker.events()) == len(lines)
    assert [each["event"] for each in worker.events()] == ["worker_ready", "worker_draining", "worker_stopped"]
    assert worker.events()[0]["node_id"] == "depot-1"


def test_log_lines_for_people_are_plain_text_without_colour_in_a_file(online: Shell) -> None:
    worker = online.start_worker("--log-format", "text", "--node-id", "depot-1")

    assert re.match(r"\d\d:\d\d:\d\d info worker_ready node_id=depot-1 ", worker.said)
    assert "\x1b" not in worker.said


def test_metrics_are_served_and_count_what_ran(online: Shell) -> None:
    online.start_worker("--metrics", f":{(port := free_port())}", "--layer", "edge")
    assert calls_are_answered(online)

    metrics = urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10).read().decode()

    assert 'canoa_actions_total{action="depot.echo",layer="EDGE",outcome="ok"} 1.0' in metrics
    assert 'canoa_action_duration_seconds_count{action="depot.echo"} 1.0' in metrics
    assert "canoa_build_info{" in metrics
    assert "process_resident_memory_bytes" in metrics


def test_a_taken_metrics_port_is_told_with_the_option_to_change(online: Shell) -> None:
    first = online.start_worker("--metrics", f":{(port := free_port())}")

    second = online.canoa("worker", DEPOT, "--metrics", f"{LOOPBACK}:{port}")

    assert (second.returncode, second.stdout) == (1, "")
    assert f"port {port} on {LOOPBACK} is taken by another program; end that, or choose another --metrics" in (
        second.stderr
    )
    assert first.is_alive


# --- Losing the broker ------------------------------------------------------------------------------


def test_a_worker_whose_broker_is_killed_works_again_when_it_is_back(online: Shell, rabbit_node: RabbitNode) -> None:
    worker = online.start_worker()
    assert calls_are_answered(online)

    rabbit_node.kill()
    worker.wait_logged("broker_link_lost")
    rabbit_node.start()

    worker.wait_logged("broker_link_restored")
    assert calls_are_answered(online)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_worker_that_can_no_longer_consume_says_why_and_ends(
    online: Shell, rabbit_url: str, rabbit_node: RabbitNode
) -> None:
    worker = online.start_worker()
    vhost = unquote(urlsplit(rabbit_url).path[1:])

    rabbit_node.ctl("set_permissions", "-p", vhost, "guest", "^nothing$", ".*", ".*")
    rabbit_node.ctl("delete_queue", "-p", vhost, "canoa.action.depot.echo")

    assert worker.wait() == 1
    assert "error: it can no longer receive work: the broker refuses" in worker.said
    assert "Traceback" not in worker.said
