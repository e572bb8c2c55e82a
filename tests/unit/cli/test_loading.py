"""An app that a command loads stands where the command says, and so whatever its actions submit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from canoa.cli.loading import load_app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("given", "stands"), [("natal", "natal"), ("", ""), (None, "recife")])
def test_an_app_stands_where_its_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, stands: str
) -> None:
    (tmp_path / "standing.py").write_text("from canoa import Canoa\napp = Canoa('standing')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CANOA_SITE", "recife")
    monkeypatch.delitem(sys.modules, "standing", raising=False)

    assert load_app("standing:app", site=given).settings.site == stands
