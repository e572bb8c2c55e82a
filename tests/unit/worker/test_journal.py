"""The file that tells what ran when its process was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canoa.vocabulary import TaskId
from canoa.worker import journal
from canoa.worker.journal import Journal, count_crashes, left_running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A, B = TaskId("a" * 32), TaskId("b" * 32)


def test_what_begun_and_did_not_end_was_running(tmp_path: Path) -> None:
    written = Journal(tmp_path / "running")
    written.begun(A)
    written.begun(B)
    written.ended(A)

    assert left_running(tmp_path / "running") == {B}


def test_a_new_journal_forgets_the_old_one(tmp_path: Path) -> None:
    Journal(tmp_path / "running").begun(A)

    Journal(tmp_path / "running")

    assert left_running(tmp_path / "running") == set()


def test_it_stays_small_and_keeps_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 1000)
    written = Journal(tmp_path / "running")
    written.begun(A)

    for _ in range(500):
        written.begun(B)
        written.ended(B)

    assert (tmp_path / "running").stat().st_size < 1100
    assert left_running(tmp_path / "running") == {A}


def test_a_line_cut_off_by_a_power_cut_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "running").write_bytes(b"+" + A.encode() + b"\n+\xff\xfe")

    assert A in left_running(tmp_path / "running")


def test_crashes_are_counted_over_restarts_and_only_in_a_row(tmp_path: Path) -> None:
    running, counts = tmp_path / "running", tmp_path / "crashes"
    for expected in (1, 2):
        Journal(running).begun(A)
        assert count_crashes(running, counts) == {A: expected}

    Journal(running).begun(B)

    assert count_crashes(running, counts) == {B: 1}


def test_without_a_journal_nothing_ran(tmp_path: Path) -> None:
    assert count_crashes(tmp_path / "running", tmp_path / "crashes") == {}


def test_a_full_disk_stops_nobody_and_touches_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Journal(tmp_path / "running")
    written.begun(A)
    monkeypatch.setattr(journal, "REWRITE_BYTES", 0)
    (tmp_path / "running.new").mkdir()  # so that it cannot be rewritten

    with (tmp_path / "other").open("wb") as other:
        written.begun(B)
        written.ended(B)
        other.flush()

    assert (tmp_path / "other").read_bytes() == b""
    (tmp_path / "running.new").rmdir()
    written.ended(B)
    assert left_running(tmp_path / "running") == {A}
