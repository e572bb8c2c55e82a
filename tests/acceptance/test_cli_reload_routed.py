"""`canoa worker --reload` beside a manager: what a folder of actions holds is what the node offers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import CANOA, Shell, until

if TYPE_CHECKING:
    from pathlib import Path

NODE = "gw-7"

PACKAGE = """
from importlib import import_module
from pkgutil import iter_modules

from canoa import Canoa

app = Canoa("depot")

from depot import actions

for each in iter_modules(actions.__path__):
    import_module(f"depot.actions.{each.name}")
"""

ACTION = """
from depot import app


@app.action()
async def NAME() -> str:
    return "NAME was here"
"""


class Depot:
    """A package with a folder of actions, one in each file; a manager, and a node that follows its code."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        shell.folder = folder
        shell.env["CANOA_STORE"] = f"sqlite:///{folder}/canoa.db"
        self._shell = shell
        self._actions = folder / "depot" / "actions"
        self._actions.mkdir(parents=True)
        (self._actions / "__init__.py").touch()
        (self._actions.parent / "__init__.py").write_text(PACKAGE)

    def add(self, name: str) -> None:
        (self._actions / f"{name}.py").write_text(ACTION.replace("NAME", name))

    def remove(self, name: str) -> None:
        (self._actions / f"{name}.py").unlink()

    def start(self) -> None:
        self._shell.start(str(CANOA), "manager", "--port", "0").wait_logged("manager_ready")
        self._shell.start(str(CANOA), "worker", "depot:app", "--reload", "--node-id", NODE)

    def offers(self, *names: str) -> bool:
        """As the manager knows it."""
        run = self._shell.canoa("nodes", "--json")
        nodes = json.loads(run.stdout) if run.returncode == 0 else []
        return {each["id"]: each["actions"] for each in nodes} == {NODE: [f"depot.{name}" for name in names]}

    def routed(self, name: str) -> tuple[int, str]:
        """A call through the manager: its exit code, and the result."""
        run = self._shell.canoa("submit", f"depot.{name}", "{}", "--routed", "--follow")
        return run.returncode, run.stdout


@pytest.fixture
def depot(online: Shell, tmp_path: Path) -> Depot:
    return Depot(online, tmp_path)


def test_an_action_added_to_the_folder_is_offered_and_runs_and_one_removed_is_offered_no_more(depot: Depot) -> None:
    depot.add("lift")
    depot.start()
    until(lambda: depot.offers("lift"))
    assert depot.routed("weigh") == (2, "")

    depot.add("weigh")
    until(lambda: depot.offers("lift", "weigh"))
    added = depot.routed("weigh")
    depot.remove("lift")
    until(lambda: depot.offers("weigh"))

    assert added == (0, '"weigh was here"\n')
    assert depot.routed("weigh") == (0, '"weigh was here"\n')
