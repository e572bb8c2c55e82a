"""The page on link budgets tells the truth: its budgets can be read, its options, columns and figures are there."""

from __future__ import annotations

import re
from pathlib import Path

from canoa.cli.nodes import WIDE
from canoa.execution.link_budget import parse_budget
from canoa.recorder.routed_views import NodeView
from canoa.settings import read
from canoa.vocabulary import Layer

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "link-budget.md").read_text()


def test_its_file_can_be_read(tmp_path: Path) -> None:
    (found,) = re.findall(r"```toml\n# canoa.toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "canoa.toml").write_text(found)

    settings = read({}, {}, folder=tmp_path)

    assert settings.link_budget == "10MB/day"
    assert settings.link_budgets() == {Layer.EDGE: parse_budget("link_budget_edge", "5MB/h")}


def test_its_units_are_those_that_are_understood() -> None:
    sizes, times = re.findall(r"whole number of (.*?) \(thousands\) per (.*?)\. It", PAGE, re.DOTALL)[0]

    for size in re.findall(r"`(\w+)`", sizes):
        for time in re.findall(r"`(\w+)`", times):
            parse_budget("link_budget", f"1{size}/{time}")


def test_what_it_says_is_shown_is_shown() -> None:
    assert re.findall(r"column `([^`]+)`", PAGE) == [column for column in WIDE if " / " in column]
    named = re.findall(r"in full: ([\w, ]+)", PAGE)[0].split(", ")
    assert set(named) <= set(NodeView.__dataclass_fields__)
