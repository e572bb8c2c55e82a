"""Ids that no row can have yet."""

from __future__ import annotations

import pytest

from canoa.clock import now_ms
from canoa.store import newcomers
from canoa.store.newcomers import Newcomers
from canoa.wire.ids import new_task_id, task_id_of_key

BEFORE = 1_000
NEVER_S = 1e12


def made_at(ms: int, number: int = 0) -> str:
    return f"{ms << 80 | 0x7 << 76 | 1 << 63 | number:032x}"


def test_an_id_that_was_made_since_is_new_once() -> None:
    known = Newcomers(now_ms() - BEFORE)
    task_id = new_task_id()

    assert known.is_new(task_id, NEVER_S)
    assert not known.is_new(task_id, NEVER_S)


def test_an_id_from_before_may_be_anybody_s() -> None:
    assert not Newcomers(now_ms() + BEFORE).is_new(new_task_id(), NEVER_S)


def test_an_id_that_says_it_was_made_later_is_not_ours() -> None:
    """Of a hash, one in sixteen looks as if it said a time; most of those lie ahead."""
    assert not Newcomers(0).is_new(made_at(2_000), 1.0)
    assert not Newcomers(0).is_new(f"{500 << 80 | 0x7 << 76 | 0x1 << 60:032x}", 1.0)  # no UUID
    assert Newcomers(0).is_new(made_at(500), 1.0)


@pytest.mark.parametrize("task_id", ["a", "", task_id_of_key("x", "y"), "0" * 32])
def test_an_id_that_does_not_say_when_it_was_made_may_be_anybody_s(task_id: str) -> None:
    assert not Newcomers(0).is_new(task_id, NEVER_S)


def test_what_was_forgotten_is_never_taken_for_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where later ones were made earlier."""
    monkeypatch.setattr(newcomers, "MET", 3)
    known = Newcomers(0)
    ids = [made_at(ms, number) for number, ms in enumerate((900, 100, 500, 950, 960, 970, 980))]

    assert [known.is_new(each, NEVER_S) for each in ids] == [True] * 7
    assert not any(known.is_new(each, NEVER_S) for each in ids)
