"""Erlang expressions on a private RabbitMQ node, by a small program that comes with Erlang.

`rabbitmqctl eval` starts a whole Erlang machine for each: 0.7 s of CPU time, and several seconds on a busy machine,
where `erl_call` takes some milliseconds.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = "erl_call"
_WITHIN_S = 60.0


def is_done(expression: str, *, node: str, env: Mapping[str, str], folder: Path) -> bool:
    """Whether the node said `ok` to the expression. If not: what is wrong is better asked through `rabbitmqctl`."""
    program = shutil.which(PROGRAM)
    if program is None:
        return False
    command = [program, "-R", "-sname", node, "-e"]  # -R: under a name that nobody else has
    try:
        done = subprocess.run(
            command, input=expression, env=env, cwd=folder, capture_output=True, text=True, timeout=_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "{ok, ok}"
