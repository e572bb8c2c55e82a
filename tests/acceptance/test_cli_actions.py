"""`canoa actions`: an app's actions, what waits for them, and queues that are there before the first worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, DEPOT, Shell

if TYPE_CHECKING:
    from tests.acceptance.shell import Process

ECHO = {
    "action": "depot.echo",
    "parameters": "(text: str, *, times: int = 1)",
    "runs": "async",
    "timeout_s": 30.0,
    "retry": 0,
}


def row_of(shell: Shell, action: str) -> dict[str, object]:
    listed = shell.canoa("actions", DEPOT, "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    (row,) = [each for each in json.loads(listed.stdout) if each["action"] == action]
    return dict(row)


def test_without_a_broker_the_list_says_what_the_app_offers(offline: Shell) -> None:
    listed = offline.canoa("actions", DEPOT)

    assert (listed.returncode, listed.stderr) == (0, "")
    for word in ("depot.echo", "depot.stick", "thread", "text: str"):
        assert word in listed.stdout
    assert "\x1b" not in listed.stdout
    assert row_of(offline, "depot.echo") == ECHO


def test_tasks_submitted_before_the_first_worker_wait_visibly_and_then_run(online: Shell) -> None:
    assert row_of(online, "depot.echo") == {**ECHO, "waiting": None, "workers": None}

    declared = online.canoa("actions", "declare", DEPOT)
    assert (declared.returncode, declared.stdout) == (0, "")
    assert "depot.echo" in declared.stderr
    assert row_of(online, "depot.echo") == {**ECHO, "waiting": 0, "workers": 0}

    caller: Process = online.start(str(CANOA), "call", "depot.echo", '{"text": "early"}')
    assert "1 waiting, 0 workers" in caller.wait_logged("waiting for depot.echo")

    online.start_worker()
    assert (caller.wait(), caller.output()) == (0, '"early"\n')
    assert row_of(online, "depot.echo") == {**ECHO, "waiting": 0, "workers": 1}


def test_declaring_needs_a_broker_that_others_can_reach(offline: Shell) -> None:
    declared = offline.canoa("actions", "declare", DEPOT)

    assert (declared.returncode, declared.stdout) == (2, "")
    assert "CANOA_BROKER" in declared.stderr


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere:app", "no module 'nowhere'"),
        ("tests.acceptance.nowhere:app", "no module 'tests.acceptance.nowhere'"),
        ("tests.acceptance.depot:not_an_app", "did you mean tests.acceptance.depot:app?"),
        ("tests.acceptance.shell:app", "define one: app = Canoa('shop')"),
        (":app", "is not module:app"),
        ("tests/acceptance/depot.py", "write module:app"),
    ],
)
def test_a_target_that_is_no_app_is_wrong_use_with_a_hint(offline: Shell, target: str, says: str) -> None:
    listed = offline.canoa("actions", target)

    assert (listed.returncode, listed.stdout) == (2, "")
    assert says in listed.stderr
    assert "Traceback" not in listed.stderr
