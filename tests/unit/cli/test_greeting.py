"""What programs say to a person when they are ready."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from canoa.cli.greeting import greet_manager

if TYPE_CHECKING:
    import pytest


def test_a_manager_says_on_a_terminal_what_to_do_next(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    greet_manager("http://127.0.0.1:8420")

    told = capsys.readouterr()
    assert told.out == ""
    assert "  look   http://127.0.0.1:8420/docs\n" in told.err
    assert "         canoa worker module:app --layer edge --site natal\n         canoa nodes\n" in told.err


def test_a_manager_that_nobody_watches_leaves_it_to_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    greet_manager("http://127.0.0.1:8420")

    assert capsys.readouterr() == ("", "")
