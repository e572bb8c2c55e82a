"""The pages on settings tell the truth: their files are valid, their table is whole, and their errors are ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from canoa.settings import fields, survey

ROOT = Path(__file__).parents[2]
CONFIGURE, TLS = (ROOT / "docs" / "howto" / name for name in ("configure.md", "tls.md"))
FILES = re.compile(r"```(?:toml|sh)\n# (\S+)\n(.*?)```", re.DOTALL)
SNIPPETS = [(page.name, name, text) for page in (CONFIGURE, TLS) for name, text in FILES.findall(page.read_text())]


@pytest.mark.parametrize(("page", "name", "text"), SNIPPETS)
def test_every_file_on_the_pages_can_be_used_as_it_stands(tmp_path: Path, page: str, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    found = survey({}, {}, folder=tmp_path)

    assert found.problems == []
    assert any(each.source == name for each in found.sourced.values())


def test_the_pages_have_files_of_every_kind() -> None:
    assert {name for _, name, _ in SNIPPETS} == {".env", "canoa.toml", "pyproject.toml"}


def test_the_table_names_every_setting_and_no_other() -> None:
    rows = [line.split("|")[1] for line in CONFIGURE.read_text().splitlines() if line.startswith("| `")]

    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == [field.name for field in fields()]


def test_the_defaults_in_the_table_are_those_in_force() -> None:
    numbers = {field.name: field.default for field in fields() if type(field.default) in (int, float)}

    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", CONFIGURE.read_text(), re.MULTILINE))

    assert {name: float(rows[name]) for name in numbers} == numbers


@pytest.mark.parametrize("said", re.findall(r"^\| ([^|`]+?) \|", TLS.read_text(), re.MULTILINE)[1:])
def test_the_errors_in_the_table_are_those_that_are_raised(said: str) -> None:
    sources = "".join((ROOT / "src/canoa/broker/amqp" / name).read_text() for name in ("tls.py", "engine.py"))

    for part in said.split(", "):
        start = part.partition(" '")[0]
        assert start in sources or start.replace("EXTERNAL", "{mechanism}") in sources, part
