"""`canoa nodes`, `plans`, `task` and plans in `submit`: the same through the API and through the broker."""

from __future__ import annotations

import json
import re
import signal
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.screen import Screen
from tests.acceptance.shell import CANOA, ROOT, Shell, until

from canoa.cli.nodes import WIDE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canoa.testing import RabbitNode

DEPOT = "tests.acceptance.continuum_depot:app"
PLAN = """
plan: power-factor
steps:
  fetch: {action: continuum.fetch, with: {url: $input.url}}
  total: {action: continuum.total, with: {data: $fetch}}
  report:
    action: continuum.report
    with: {total: $total, values: $fetch.values, folder: $input.folder}
    retry: 0
"""


@pytest.fixture(
    scope="module", params=["through the API", pytest.param("through the broker", marks=pytest.mark.rabbitmq)]
)
def managed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell where a manager runs and a worker has joined, with a plan file in its folder."""
    folder = tmp_path_factory.mktemp("managed")
    (folder / "plan.yaml").write_text(PLAN)
    shell = Shell(folder, folder=folder)
    shell.env["PYTHONPATH"] += f":{ROOT}"
    if request.param == "through the API":
        shell.start(str(CANOA), "up", DEPOT, "--port", "0", "--site", "natal").wait_logged("Ctrl-C")
        until(lambda: len(nodes(shell)) == 1)
        yield shell
        shell.close()
        return
    node: RabbitNode = request.getfixturevalue("rabbit_node")
    vhost = node.add_vhost()
    shell.env |= {"CANOA_BROKER": node.url(vhost), "CANOA_STORE": f"sqlite:///{folder}/canoa.db"}
    shell.start(str(CANOA), "manager", "--port", "0").wait_logged("manager_ready")
    worker = ["worker", DEPOT, "--node-id", "gw-7", "--layer", "fog", "--site", "natal"]
    shell.start(str(CANOA), *worker).wait_logged("worker_ready")
    until(lambda: len(nodes(shell)) == 1)
    yield shell
    shell.close()
    node.release_vhost(vhost)


def nodes(shell: Shell) -> list[dict[str, Any]]:
    run = shell.canoa("nodes", "--json")
    return list(json.loads(run.stdout)) if run.returncode == 0 else []


def given(folder: Path) -> str:
    return json.dumps({"url": "abc", "folder": str(folder)})


def submitted(shell: Shell, *args: str, site: str = "") -> str:
    run = shell.canoa("submit", *args, CANOA_SITE=site)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    return run.stdout.strip()


def test_every_node_is_shown_with_what_it_offers(managed: Shell) -> None:
    run = managed.canoa("nodes")

    [node] = nodes(managed)
    assert run.returncode == 0, run.stderr
    assert node["id"] in run.stdout
    assert "continuum.fetch, continuum.inspect, continuum.report, continuum.total" in run.stdout
    [heads, _, row] = managed.canoa("nodes", "--wide").stdout.splitlines()
    assert re.split(r" {2,}", heads.strip()) == WIDE
    assert re.split(r" {2,}", row)[3] == node["protocol"]
    one = managed.canoa("nodes", node["id"], "--json")
    assert json.loads(one.stdout)["health"] == "OK"
    missing = managed.canoa("nodes", "nobody")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "'nobody'" in missing.stderr


def test_one_is_told_where_a_call_would_go_and_why(managed: Shell) -> None:
    [node] = nodes(managed)
    run = managed.canoa("explain", "continuum.fetch")
    found = json.loads(managed.canoa("explain", "continuum.fetch", "--size", "1000", "--json").stdout)
    unknown = managed.canoa("explain", "continuum.nothing")

    assert run.stderr == f"continuum.fetch would go to {node['id']}, by round robin over 1 node.\n"
    assert "its turn is next" in run.stdout
    assert (found["node_id"], found["routing"]) == (node["id"], "round_robin")
    assert [each["ruled_out"] for each in found["considered"]] == [""]
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "continuum.nothing" in unknown.stderr


PLACED = """
plan: placed
steps:
  fetch: {action: continuum.fetch, with: {url: $input.url}}
  total: {action: continuum.total, with: {data: $fetch}, placement: {layers: [EDGE], near: prefer}}
"""


def test_one_is_told_where_a_step_of_a_plan_would_go(managed: Shell) -> None:
    [node] = nodes(managed)
    assert managed.canoa("plans", "register", "-", stdin=PLACED).returncode == 0

    first = managed.canoa("explain", "placed", "--step", "fetch")
    placed = managed.canoa("explain", "urn:sapparchi:Task:placed", "--step", "total")
    as_json = json.loads(managed.canoa("explain", "placed", "--step", "total", "--json").stdout)

    went = f"would go to {node['id']}, by round robin over 1 node.\n"
    assert first.stderr == f"step fetch of placed, continuum.fetch, {went}"
    assert placed.stderr == (
        "step total of placed, continuum.total, would wait: no node can take it now.\n"
        "Nodes of the site where fetch ran will be preferred; which one that is, is not known before.\n"
    )
    assert "the step may run in EDGE" in placed.stdout
    assert (as_json["node_id"], as_json["step"]) == (None, "total")


def test_who_registers_a_plan_is_told_what_no_node_offers_yet(managed: Shell) -> None:
    undone = "plan: undone\nsteps: {fetch: {action: continuum.fetch, compensate: later.drop}}\n"

    run = managed.canoa("plans", "register", "-", stdin=undone)

    assert (run.returncode, run.stdout) == (0, "undone\n")
    assert run.stderr == (
        "registered\nno node has ever offered later.drop: its tasks are refused until one does; look at `canoa nodes`\n"
    )


def test_what_is_to_be_near_goes_to_where_whoever_submits_it_stands(managed: Shell) -> None:
    [node] = nodes(managed)
    from_here = managed.canoa("explain", "continuum.inspect", CANOA_SITE="natal")
    from_there = managed.canoa("explain", "continuum.inspect", "--site", "recife", CANOA_SITE="natal")
    done = managed.canoa("submit", "continuum.inspect", "--routed", "--follow", CANOA_SITE="natal")
    waits = submitted(managed, "continuum.inspect", "--routed", site="recife")
    story = json.loads(managed.canoa("task", "show", waits, "--json").stdout)
    managed.canoa("cancel", waits)

    assert from_here.stderr.endswith(f"would go to {node['id']}, by round robin over 1 node.\nCalled from natal.\n")
    assert from_there.stderr.endswith("would wait: no node can take it now.\nCalled from recife.\n")
    assert "it is not in recife, where the input comes from" in from_there.stdout
    assert (done.returncode, done.stdout) == (0, '"seen"\n')
    assert (story["steps"][0]["state"], story["steps"][0]["attempts"]) == ("waiting", [])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["placed"], "--step NAME"),
        (["plan.yaml", "--step", "fetch"], "canoa plans register plan.yaml"),
        (["continuum.fetch", "--step", "fetch"], "is an action, which has no steps"),
        (["nothing", "--step", "fetch"], "no plan 'nothing' is registered"),
    ],
)
def test_what_cannot_be_explained_names_the_remedy(managed: Shell, args: list[str], said: str) -> None:
    refused = managed.canoa("explain", *args)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr


def test_who_submits_an_action_that_no_node_offers_is_told_what_helps(managed: Shell) -> None:
    mistyped = managed.canoa("submit", "continuum.fetsh", '{"url": "abc"}', "--routed")
    missing = managed.canoa("submit", "shop.resize", "{}", "--routed", "--json")

    assert (mistyped.returncode, mistyped.stdout) == (2, "")
    assert mistyped.stderr == (
        "error: no node has ever offered action 'continuum.fetsh'; did you mean continuum.fetch? "
        "`canoa nodes` shows who offers what, `canoa worker module:app` starts a node\n"
    )
    assert json.loads(missing.stdout)["error"]["type"] == "UnknownAction"
    assert "nodes offer continuum.fetch, continuum.inspect, continuum.report, continuum.total;" in missing.stderr


def test_a_plan_file_is_submitted_and_watched_line_by_line_where_there_is_no_terminal(
    managed: Shell, tmp_path: Path
) -> None:
    run = managed.canoa("submit", "plan.yaml", given(tmp_path), "--watch")

    assert (run.returncode, run.stdout) == (0, '"5 of 2"\n'), run.stderr
    ends = [line for line in run.stderr.splitlines() if ": ok on " in line]
    assert [line.partition(":")[0] for line in ends] == ["fetch", "total", "report"]


@pytest.fixture
def watched(managed: Shell, tmp_path: Path) -> Iterator[Screen]:
    """The plan, submitted and watched in a terminal."""
    (tmp_path / "held").touch()
    screen = Screen(managed, "submit", "plan.yaml", given(tmp_path), "--watch")
    yield screen
    (tmp_path / "held").unlink(missing_ok=True)  # or the worker would go on with it for the tests to come
    screen.close()


def test_while_a_step_runs_a_terminal_shows_how_far_its_plan_is_and_what_has_ended_gives_its_result(
    managed: Shell, watched: Screen, tmp_path: Path
) -> None:
    until(lambda: watched.rows == {"step": "state", "fetch": "ok", "total": "ok", "report": "sent"})
    found = re.search(r"\b[0-9a-f]{32}\b", watched.drawn)
    assert found is not None, watched.drawn
    fetched = managed.canoa("task", "show", found[0], "--step", "fetch")
    summed = managed.canoa("task", "show", found[0], "--step", "total")
    reported = managed.canoa("task", "show", found[0], "--step", "report")
    assert watched.is_alive
    (tmp_path / "held").unlink()

    assert watched.wait() == (0, '"5 of 2"\n')
    assert watched.rows == {"step": "state", "fetch": "ok", "total": "ok", "report": "ok"}
    assert "travelled" in watched.drawn
    assert json.loads(fetched.stdout) == {"values": [3.0, 2.0]}
    assert summed.stdout == "5.0\n"
    assert (reported.returncode, reported.stdout) == (1, "")
    assert "gave nothing: it is sent" in reported.stderr


def test_a_task_tells_its_whole_story(managed: Shell, tmp_path: Path) -> None:
    task_id = submitted(managed, "plan.yaml", given(tmp_path))
    assert managed.canoa("result", task_id, "--follow").stdout == '"5 of 2"\n'

    story = managed.canoa("task", "show", task_id)
    told = json.loads(managed.canoa("task", "show", task_id, "--json").stdout)

    assert story.returncode == 0, story.stderr
    lines = story.stdout.splitlines()
    assert lines[0].startswith(f"task {task_id}  power-factor  ok, took ")
    assert [line[:9] for line in lines if line[0] in "├└"] == ["├─ fetch ", "├─ total ", "└─ report"]
    assert story.stdout.count("travelled") == 3
    assert [step["outcome"] for step in told["steps"]] == ["ok", "ok", "ok"]
    assert managed.canoa("task", "show", task_id, "--step", "total").stdout == "5.0\n"


def test_how_long_a_task_took_is_the_same_wherever_it_is_shown(managed: Shell, tmp_path: Path) -> None:
    task_id = submitted(managed, "plan.yaml", given(tmp_path))
    managed.canoa("result", task_id, "--follow")

    heading = managed.canoa("task", "show", task_id).stdout.splitlines()[0]
    [row] = [line for line in managed.canoa("tasks").stdout.splitlines() if task_id in line]
    task = json.loads(managed.canoa("tasks", task_id, "--json").stdout)

    waited_too = datetime.fromisoformat(task["ended_at"]) - datetime.fromisoformat(task["submitted_at"])
    assert task["took_s"] == pytest.approx(waited_too.total_seconds())
    took = re.search(r"took ([\d.]+ m?s)", heading)
    assert took is not None, heading
    assert row.rstrip().endswith(f"   {took[1]}")
    assert f"{task['took_s']}" in managed.canoa("tasks", task_id).stdout


def test_a_failed_task_is_exit_1_and_only_what_failed_is_run_again(managed: Shell, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    failed = managed.canoa("submit", "plan.yaml", given(tmp_path), "--watch")
    task_id = failed.stderr.splitlines()[0].split()[1]
    nothing = managed.canoa("task", "show", task_id, "--step", "report")
    (tmp_path / "broken").unlink()

    again = managed.canoa("task", "rerun", task_id, "--watch")
    refused = managed.canoa("task", "rerun", task_id)

    assert (failed.returncode, failed.stdout) == (1, "")
    assert "step report: ValueError: no paper" in failed.stderr
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert (again.returncode, again.stdout) == (0, '"5 of 2"\n'), again.stderr
    attempts = {
        step["name"]: len(step["attempts"])
        for step in json.loads(managed.canoa("task", "show", task_id, "--json").stdout)["steps"]
    }
    assert attempts["fetch"] == attempts["total"] == 1
    assert (refused.returncode, refused.stdout) == (2, "")


def test_ctrl_c_leaves_the_task_alone_and_says_how_to_go_on(managed: Shell, tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    watching = managed.start(str(CANOA), "submit", "plan.yaml", given(tmp_path), "--watch")
    watching.wait_logged("report: sent to")

    watching.send(signal.SIGINT)

    assert (watching.wait(), watching.output()) == (130, "")
    task_id = watching.said.split()[1]
    assert f"canoa result {task_id} --follow" in watching.said
    assert "Traceback" not in watching.said
    (tmp_path / "held").unlink()
    assert managed.canoa("result", task_id, "--follow").stdout == '"5 of 2"\n'


def test_a_registered_plan_is_listed_shown_and_submitted_by_its_name(managed: Shell, tmp_path: Path) -> None:
    registered = managed.canoa("plans", "register", "plan.yaml")
    again = managed.canoa("plans", "register", "plan.yaml", "--json")
    shown = managed.canoa("plans", "show", "power-factor")
    from_stdin = managed.canoa("plans", "register", "-", "--json", stdin=shown.stdout)

    assert (registered.returncode, registered.stdout) == (0, "power-factor\n"), registered.stderr
    assert json.loads(again.stdout)["is_new"] is False
    assert json.loads(from_stdin.stdout)["is_new"] is False
    assert "power-factor" in managed.canoa("plans", "list").stdout
    for name in ("power-factor", "urn:sapparchi:Task:power-factor"):
        run = managed.canoa("submit", name, given(tmp_path), "--follow")
        assert (run.returncode, run.stdout) == (0, '"5 of 2"\n'), run.stderr


def test_the_plans_of_an_app_are_registered_with_it(managed: Shell) -> None:
    """`canoa up` does so by itself."""
    registered = managed.canoa("plans", "register", DEPOT)

    assert (registered.returncode, registered.stdout) == (0, "summing\n"), registered.stderr
    assert ("before" in registered.stderr) is ("CANOA_STORE" not in managed.env)
    run = managed.canoa("submit", "summing", '{"url": "abc"}', "--follow")
    assert (run.returncode, run.stdout) == (0, "5.0\n"), run.stderr


def test_an_action_is_routed_where_that_is_asked_for(managed: Shell) -> None:
    run = managed.canoa("submit", "continuum.fetch", '{"url": "abc"}', "--routed", "--follow", "--json")

    told = json.loads(run.stdout)
    assert told["result"] == {"values": [3.0, 2.0]}
    assert managed.canoa("task", "show", told["id"]).returncode == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["submit", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["submit", "bad.yaml"], "bad.yaml: line 3"),
        (["submit", "nothing"], "'nothing' is not an action's name"),
        (["submit", "plan.yaml", "{url"], "the input is not JSON"),
        (["submit", "plan.yaml", "--lines", "-"], "--lines goes without"),
        (["submit", "continuum.fetch", "--watch"], "add --routed"),
        (["submit", "nobody.offers", "--routed"], "nobody.offers"),
        (["plans", "show", "nothing"], "no plan 'nothing'"),
        (["task", "show", "nonsense"], "'nonsense'"),
        (["task", "rerun", "nonsense"], "'nonsense'"),
    ],
)
def test_wrong_use_is_exit_2_and_names_value_or_remedy(managed: Shell, args: list[str], says: str) -> None:
    (managed.folder / "bad.yaml").write_text("plan: p\nsteps:\n  a: {action: x.y, after: [b]}\n")

    run = managed.canoa(*args)

    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert says in run.stderr


@pytest.mark.rabbitmq
def test_without_a_manager_the_error_names_the_command(online: Shell) -> None:
    for args in (["nodes"], ["plans", "list"], ["submit", "urn:sapparchi:Task:p"]):
        run = online.canoa(*args)

        assert (run.returncode, run.stdout) == (1, "")
        assert "canoa manager" in run.stderr
