"""Pages lead somewhere: every link between them, and to files beside them, finds its target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_finds_its_target(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert missing == []


def test_the_index_names_every_page_for_readers() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}

    pages = {page for page in PAGES if page.is_relative_to(index.parent / "howto")}

    assert pages <= named
