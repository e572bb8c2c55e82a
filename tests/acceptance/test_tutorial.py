"""The tutorial tells the truth: its files and its commands, one after the other, give what it shows."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.acceptance.shell import CANOA, ROOT, Shell, until
from tests.acceptance.terminal import Terminal, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = ROOT / "docs" / "tutorial.md"
BLOCKS = re.compile(r"^```(python|console)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GOES_ON = "canoa up"
LOOKS = ("canoa tasks", "canoa actions", "canoa dead list")
"""Commands that change nothing: people look again until they see what they wait for."""


class Step(NamedTuple):
    command: str
    shown: str


def steps_of(block: str) -> Iterator[Step]:
    """`$` and `^C` stand before what is typed; what follows is what the page shows of it."""
    for part in re.split(r"^(?=\$ |\^C$)", block, flags=re.MULTILINE):
        if part:
            command, _, shown = part.partition("\n")
            yield Step(command.removeprefix("$ "), normalised(shown))


class Reader:
    """Somebody who types what the page says, into the shells it names, and compares."""

    def __init__(self, folder: Path, scratch: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._scratch = scratch
        self._env = env
        self._shells: dict[str, Terminal] = {}

    def write(self, file: str) -> None:
        name = file.partition("\n")[0].removeprefix("# ")
        (self._folder / name).write_text(file)

    def type(self, shell: str, step: Step) -> None:
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


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "shop"
    folder.mkdir()
    shell = Shell(tmp_path, folder=folder)
    env = {**shell.env, "PATH": f"{CANOA.parent}:{shell.env['PATH']}"}
    reader = Reader(folder, tmp_path, env)
    with ExitStack() as stack:
        stack.callback(shell.canoa, "site", "stop")
        stack.callback(reader.close)
        yield reader


@pytest.mark.rabbitmq
@pytest.mark.timeout(180)
def test_every_file_and_every_command_of_the_tutorial_gives_what_it_shows(reader: Reader) -> None:
    for kind, shell, block in BLOCKS.findall(PAGE.read_text()):
        if kind == "python":
            reader.write(block)
        else:
            for step in steps_of(block):
                reader.type(shell or "second", step)


def test_the_tutorial_has_no_block_that_is_not_run() -> None:
    page = PAGE.read_text()

    assert len(BLOCKS.findall(page)) * 2 == page.count("```")
