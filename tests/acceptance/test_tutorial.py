"""The tutorial and the pages with commands tell the truth: typed one after the other, they give what is shown."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.reader import BLOCKS, Reader
from tests.acceptance.shell import CANOA, ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
PAGES = [DOCS / "howto" / "retry.md"]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """In an empty folder, with little in the environment."""
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
    reader.follow(TUTORIAL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_and_every_command_of_a_page_gives_what_it_shows(page: Path, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.parametrize("page", [TUTORIAL, *PAGES], ids=lambda page: page.stem)
def test_no_block_of_these_pages_is_left_out(page: Path) -> None:
    text = page.read_text()

    assert len(BLOCKS.findall(text)) * 2 == text.count("```")
