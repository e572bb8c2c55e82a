"""A shell for each test, with a broker of its own where the test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Shell]:
    """No broker is named."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def online(tmp_path: Path, rabbit_url: str) -> Iterator[Shell]:
    """CANOA_BROKER names an empty virtual host."""
    shell = Shell(tmp_path, env={"CANOA_BROKER": rabbit_url})
    yield shell
    shell.close()
