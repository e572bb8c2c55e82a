"""The page on deploying tells the truth: its copy of a running SQLite store is one to go on from."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, DEPOT, ROOT, Shell

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text()
COPY = re.compile(r"^    /opt/canoa/bin/python (-c .*VACUUM.*)$", re.MULTILINE)


def copy_as_the_page_says(folder: Path) -> Path:
    found = COPY.search(PAGE)
    assert found is not None
    subprocess.run([sys.executable, *shlex.split(found[1])], cwd=folder, check=True, timeout=60)
    return folder / "backup.db"


def kept(shell: Shell, text: str) -> str:
    """The id of a task that has ended."""
    task_id = shell.canoa("submit", "depot.echo", json.dumps({"text": text})).stdout.strip()
    assert shell.canoa("result", task_id, "--follow").returncode == 0
    return task_id


def test_a_restored_copy_knows_what_ended_before_it_and_nothing_later(tmp_path: Path) -> None:
    shell = Shell(tmp_path, folder=tmp_path)
    shell.env["PYTHONPATH"] += f":{ROOT}"
    up = [str(CANOA), "up", DEPOT, "--port", "0"]
    running = shell.start(*up)
    running.wait_logged("Ctrl-C")
    before = kept(shell, "axe")

    copy = copy_as_the_page_says(tmp_path)
    after = kept(shell, "saw")
    running.kill()
    for name in ("canoa.db", "canoa.db-wal", "canoa.db-shm"):
        (tmp_path / ".canoa" / name).unlink(missing_ok=True)
    copy.rename(tmp_path / ".canoa" / "canoa.db")
    shell.start(*up).wait_logged("Ctrl-C")

    assert shell.canoa("result", before).stdout == '"axe"\n'
    assert "no task" in shell.canoa("result", after).stderr
    shell.close()
