"""The page on plans tells the truth: its files and commands, pasted in order, do what it says."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, ROOT, Shell, until

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "howto" / "plans.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def pasted(shell: Shell, commands: str) -> subprocess.CompletedProcess[str]:
    env = {**shell.env, "PATH": f"{CANOA.parent}:{shell.env['PATH']}"}
    command = ["/bin/bash", "-ec", commands]
    return subprocess.run(command, cwd=shell.folder, env=env, capture_output=True, text=True, timeout=60)


def test_the_files_and_commands_of_the_page_do_what_it_says(offline: Shell, tmp_path: Path) -> None:
    offline.folder = tmp_path
    code, in_python = blocks("python")
    (plan,) = blocks("yaml")
    (tmp_path / "meter.py").write_text(f"{code}\n\n{in_python}")
    (tmp_path / "plan.yaml").write_text(plan)
    offline.start(str(CANOA), "up", "meter:app", "--port", "0").wait_logged("Ctrl-C")
    until(lambda: "meter.read" in offline.canoa("nodes").stdout)

    watched, by_name, failed = (pasted(offline, each) for each in blocks("sh"))

    assert (watched.returncode, watched.stdout) == (0, '"good"\n'), watched.stderr
    assert "report: ok on" in watched.stderr
    assert (by_name.returncode, by_name.stdout) == (0, 'power-factor\n"too low"\n'), by_name.stderr
    assert failed.returncode == 0, failed.stderr
    assert "└─ report  refused" in failed.stdout
    assert failed.stdout.endswith("\n0.92\n")
