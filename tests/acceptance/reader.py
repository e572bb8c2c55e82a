"""Somebody who reads a page, writes its files, types its commands into the shells it names, and compares.

A page has two kinds of blocks: `python`, whose first line names the file, and `console`, followed by the name of the
shell where there are several. `$` and `^C` stand before what is typed, and what it shows after it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.acceptance.shell import until
from tests.acceptance.terminal import Terminal, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCKS = re.compile(r"^```(python|console)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GOES_ON = "canoa up"
LOOKS = ("canoa tasks", "canoa actions", "canoa dead list")
"""Commands that change nothing: people look again until they see what they wait for."""


class Step(NamedTuple):
    command: str
    shown: str


def steps_of(block: str) -> Iterator[Step]:
    for part in re.split(r"^(?=\$ |\^C$)", block, flags=re.MULTILINE):
        if part:
            command, _, shown = part.partition("\n")
            yield Step(command.removeprefix("$ "), normalised(shown))


class Reader:
    def __init__(self, folder: Path, scratch: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._scratch = scratch
        self._env = env
        self._shells: dict[str, Terminal] = {}

    def follow(self, page: Path) -> None:
        """From the first block to the last."""
        for kind, shell, block in BLOCKS.findall(page.read_text()):
            if kind == "python":
                self._write(block)
            else:
                for step in steps_of(block):
                    self._type(shell or "second", step)

    def _write(self, file: str) -> None:
        name = file.partition("\n")[0].removeprefix("# ")
        (self._folder / name).write_text(file)

    def _type(self, shell: str, step: Step) -> None:
        terminal = self._shell(shell)
        if step.command == "^C":
            terminal.interrupt()
            terminal.wait_ended()
        elif step.command.startswith(GOES_ON):
            terminal.type(f"{step.command} --port 0")  # the usual one may be taken where tests run
            until(lambda: terminal.said == step.shown or len(terminal.said) > len(step.shown))
        else:
            self._to_its_end(terminal, step)
        assert terminal.said == step.shown, f"$ {step.command}\n{terminal.said}"

    def _to_its_end(self, terminal: Terminal, step: Step) -> None:
        terminal.type(step.command)
        terminal.wait_ended()
        tries = 30 if step.command.startswith(LOOKS) else 0
        while terminal.said != step.shown and tries:
            terminal.type(f"sleep 0.2; {step.command}")
            terminal.wait_ended()
            tries -= 1

    def _shell(self, name: str) -> Terminal:
        if name not in self._shells:
            log = self._scratch / f"{name}.log"
            self._shells[name] = Terminal(self._folder, log=log, env=self._env)
        return self._shells[name]

    def close(self) -> None:
        for terminal in self._shells.values():
            terminal.close()
