"""The page on events tells the truth: its kinds, fields and states are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.manager.words import node

from canoa.execution.health import Health
from canoa.execution.proof import Proof
from canoa.manager.node_telling import BACK, LEFT, NEW, SILENT, _facts
from canoa.wire.event import Event

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "events.md").read_text()
ROWS: dict[str, str] = dict(re.findall(r"^\| (`.*?) \|.*\| (.*?) ?\|$", PAGE, re.MULTILINE))


def named(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)


def test_its_kinds_are_all_that_there_are() -> None:
    assert sorted(named(" ".join(ROWS))) == sorted(named(Event.__doc__ or ""))


def test_its_states_are_those_that_are_told() -> None:
    assert named(ROWS["`node_joined`"])[1:] == [NEW, BACK]
    assert named(ROWS["`node_left`"])[1:] == [LEFT, SILENT]
    assert named(ROWS["`node_changed`"])[1:] == list(_facts(node("gw-7")))
    assert named(ROWS["`node_health`"])[1:-1] == list(Health)
    assert set(named(ROWS["`node_proof`"])[1:]) == set(Proof)


def test_its_fields_are_those_of_events() -> None:
    fields = {named(says)[0] for says in ROWS.values() if says}

    assert fields <= set(Event.__struct_fields__)
