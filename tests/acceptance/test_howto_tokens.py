"""The page on tokens tells the truth: its commands, pasted in order, do what it says, and its roles are ours."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, ROOT, Shell
from tests.acceptance.test_howto_dead_letters import pasted

from canoa.vocabulary import Role

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "howto" / "tokens.md").read_text()


def test_the_commands_of_the_page_do_what_it_says(offline: Shell, tmp_path: Path) -> None:
    offline.folder = tmp_path
    offline.env["PYTHONPATH"] += f":{ROOT}"
    offline.start(str(CANOA), "up", "examples.shop:app", "--port", "0").wait_logged("Ctrl-C")
    make, use, change = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)

    made, used = pasted(offline, make), pasted(offline, use)
    lost = (tmp_path / "ci.token").read_text()
    changed = pasted(offline, change)

    assert made.returncode == 0, made.stderr
    assert [line.split()[:3] for line in made.stdout.splitlines()[-2:]] == [
        ["ci", "operator", "live"],
        ["dashboard", "viewer", "live"],
    ]
    assert used.returncode == 0, used.stderr
    assert used.stdout == '"a-100.png"\n'
    assert changed.returncode == 0, changed.stderr
    assert (tmp_path / "ci.token").read_text() not in ("", lost)
    states = {each["name"]: each["state"] for each in json.loads(offline.canoa("token", "list", "--json").stdout)}
    assert states == {"ci": "live", "dashboard": "live"}


def test_the_page_names_every_role_and_no_other() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [role.value for role in Role]
