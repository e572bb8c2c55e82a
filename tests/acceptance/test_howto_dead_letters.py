"""The page on dead letters tells the truth: its commands, pasted in order, do what it says."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, ROOT, Shell

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "howto" / "dead-letters.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def pasted(shell: Shell, commands: str) -> subprocess.CompletedProcess[str]:
    env = {**shell.env, "PATH": f"{CANOA.parent}:{shell.env['PATH']}"}
    command = ["/bin/bash", "-ec", commands]
    return subprocess.run(command, cwd=shell.folder, env=env, capture_output=True, text=True, timeout=60)


def test_the_commands_of_the_page_do_what_it_says(offline: Shell, tmp_path: Path) -> None:
    offline.folder = tmp_path
    (code,) = blocks("python")
    (tmp_path / "oven.py").write_text(code)
    offline.start(str(CANOA), "up", "oven:app", "--port", "0").wait_logged("Ctrl-C")
    fail, look, mend = blocks("sh")

    failed, looked, mended = pasted(offline, fail), pasted(offline, look), pasted(offline, mend)

    assert "there are oven.bake" in failed.stderr
    assert "RuntimeError: out of flour" in failed.stderr
    assert looked.returncode == 0, looked.stderr
    assert "Traceback (most recent call last)" in looked.stdout
    assert mended.returncode == 0, mended.stderr
    assert mended.stderr == "would redrive 1, skipped 0\nredrove 1, skipped 0\n"
    assert mended.stdout.endswith('\n"rye is baked"\n')
