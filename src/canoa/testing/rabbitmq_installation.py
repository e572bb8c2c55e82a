"""RabbitMQ as it is installed, without the plugins that a node does not ask for: links in a folder of the node's own.

A node looks for each of its modules in the folders of all plugins there are, and reads the settings of all. Without
those it starts in 3 s of CPU time instead of 6. `rabbitmq.py` decides which nodes start like this.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_NEEDS = re.compile(r"\{applications,\s*\[([^\]]*)\]")
_PLUGIN = "rabbitmq_"  # so they are all called, and nothing else is but one part of the core
_SHARED = ("sbin", "escript")


def make(home: Path, scripts: Path, plugins: Sequence[str]) -> None:
    """In `home`. Nothing is made of an installation that looks otherwise than we know: it is used as it is."""
    whole = (scripts / "rabbitmq-server").resolve().parent.parent
    found = {path.name.partition("-")[0]: path for path in (whole / "plugins").glob("*-*")}
    needed = _closure(found, ("rabbit", *plugins))
    if not needed or not all((whole / name).is_dir() for name in _SHARED):
        return
    (home / "plugins").mkdir(parents=True)
    for name, path in found.items():
        if name in needed or not name.startswith(_PLUGIN):
            (home / "plugins" / path.name).symlink_to(path)
    for shared in _SHARED:
        (home / shared).symlink_to(whole / shared)


def remove(home: Path) -> None:
    """Its links may lead nowhere since RabbitMQ was upgraded."""
    shutil.rmtree(home, ignore_errors=True)


def environment(home: Path) -> dict[str, str]:
    """For the scripts of RabbitMQ: they find everything else from where they think they are."""
    scripts = home / _SHARED[0]
    return {"RABBITMQ_SCRIPTS_DIR": str(scripts)} if scripts.exists() else {}


def _closure(found: Mapping[str, Path], names: Sequence[str]) -> set[str]:
    """These and all that they need from among the found; empty if that cannot be told."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in needed or name not in found:  # the others are Erlang's own
            continue
        needed.add(name)
        try:
            told = _NEEDS.search((found[name] / "ebin" / f"{name}.app").read_text())
        except OSError:  # packed into one file
            return set()
        if told is None:
            return set()
        waiting += re.findall(r"\w+", told[1])
    return needed if "rabbit" in needed else set()
