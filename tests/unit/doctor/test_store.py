"""A store is looked at and left as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING

import pytest

from canoa.doctor.finding import Finding, Verdict
from canoa.doctor.store import judge_revision, look
from canoa.store.opening import new_store
from canoa.store.revision import HEAD

if TYPE_CHECKING:
    from pathlib import Path


def told(path: Path) -> Finding:
    findings, _ = asyncio.run(look(f"sqlite:///{path}", default_url="sqlite:///none"))
    return findings[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store of this version."""

    async def make() -> None:
        store = new_store(f"sqlite:///{tmp_path / 'canoa.db'}")
        await store.open()
        await store.aclose()

    asyncio.run(make())
    return tmp_path / "canoa.db"


def test_a_store_of_this_version_answers(file: Path) -> None:
    before = file.read_bytes()

    assert told(file).found == f"{file} answers; schema {HEAD}"
    assert file.read_bytes() == before


def test_a_store_that_is_not_there_yet_is_no_problem_and_is_not_made(tmp_path: Path) -> None:
    finding = told(tmp_path / "canoa.db")

    assert (finding.verdict, list(tmp_path.iterdir())) == (Verdict.OK, [])
    assert "is made when it is first used" in finding.found


def test_a_store_of_a_newer_version_is_a_problem_with_the_remedy(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("UPDATE canoa_schema SET version_num = '9999'")
    connection.commit()
    connection.close()

    finding = told(file)

    assert finding.verdict is Verdict.PROBLEM
    assert "has schema 9999" in finding.found
    assert "pip install --upgrade" in finding.found


def test_a_file_that_is_no_database_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "canoa.db").write_text("not a database, and longer than a header of one hundred bytes" * 3)

    finding = told(tmp_path / "canoa.db")

    assert finding.verdict is Verdict.PROBLEM
    assert "cannot be read as a SQLite file: file is not a database" in finding.found


def test_a_database_without_our_tables_is_empty(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "canoa.db").close()
    (tmp_path / "canoa.db").touch()

    assert "is empty; its tables are made when it is first used" in told(tmp_path / "canoa.db").found


def test_without_a_store_the_default_place_is_looked_at(file: Path) -> None:
    named, disk, store = asyncio.run(look("", default_url=f"sqlite:///{file}"))[0]

    assert named.found.startswith("none is named; `canoa up`")
    assert disk.check == "disk"
    assert store.found == f"{file} answers; schema {HEAD}"


def test_a_server_that_is_not_there_is_a_problem_without_its_password() -> None:
    (finding,), ahead_s = asyncio.run(look("postgresql://canoa:s3cret@127.0.0.1:1/canoa", default_url=""))

    assert (finding.verdict, ahead_s) == (Verdict.PROBLEM, None)
    assert "postgresql://canoa:***@127.0.0.1:1/canoa cannot be reached" in finding.found
    assert "s3cret" not in f"{finding}"


def test_an_older_schema_is_brought_up_to_date_by_the_next_start() -> None:
    finding = judge_revision("here", "0000")

    assert (finding.verdict, finding.found) == (
        Verdict.OK,
        "here answers; schema 0000, older than ours: the next start brings it up to date",
    )
