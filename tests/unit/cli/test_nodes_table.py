"""One row per node: what people look for first."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from canoa.cli.nodes import COLUMNS, WIDE, row, show_all, shown_bytes, wide_row
from canoa.recorder.routed_views import NodeView

NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)

NODE = NodeView(
    id="gw-7",
    layer="FOG",
    site="natal",
    type="canoa",
    protocol="AMQP",
    endpoint="",
    labels={},
    actions=["continuum.fetch", "continuum.report"],
    state="here",
    proof="online",
    health="OK",
    action_health={},
    load=0.25,
    queued=3,
    registered_at=NOW,
    seen_at=NOW - timedelta(seconds=12),
    sent_bytes=12_340_000,
    received_bytes=340,
)


MANY = ["continuum.fetch", "continuum.power_factor", "continuum.report", "continuum.total"]


def test_a_row_says_where_a_node_stands_and_how_it_is() -> None:
    assert dict(zip(COLUMNS, row(NODE), strict=True)) == {
        "node": "gw-7",
        "layer": "FOG",
        "site": "natal",
        "health": "OK",
        "queued": "3",
        "actions": "continuum.fetch, continuum.report",
    }


def test_a_wide_row_says_all() -> None:
    assert dict(zip(WIDE, wide_row(NODE, NOW), strict=True)) == {
        "node": "gw-7",
        "layer": "FOG",
        "site": "natal",
        "protocol": "AMQP",
        "proof": "online",
        "health": "OK",
        "last seen": "12 s ago",
        "load": "25 %",
        "queued": "3",
        "out / in": "12 MB / 340 B",
        "actions": "continuum.fetch, continuum.report",
    }


def test_of_several_ways_the_one_in_use_is_named() -> None:
    several = replace(NODE, protocol="AMQP+MQTT+HTTP", way="MQTT")

    refused = replace(several, protocol="AMQP+MQTT", endpoint_refused="it is not allowed")

    assert "AMQP+MQTT+HTTP (MQTT)" in wide_row(several, NOW)
    assert "AMQP+MQTT+HTTP" in wide_row(replace(several, way="", state="left"), NOW)
    assert "AMQP+MQTT (MQTT, HTTP refused)" in wide_row(refused, NOW)
    assert "AMQP" in wide_row(replace(NODE, way="AMQP"), NOW)


def test_an_action_that_is_down_is_named_beside_the_node() -> None:
    ill = replace(NODE, health="WARNING", action_health={"continuum.fetch": "DOWN"})

    assert "WARNING (continuum.fetch DOWN)" in wide_row(ill, NOW)
    assert row(ill)[3:] == ["WARNING", "3", "continuum.fetch (DOWN), continuum.report"]


@pytest.mark.parametrize("state", ["silent", "left", "unreachable", "over-budget"])
def test_a_node_that_gets_no_work_says_why_in_place_of_its_health(state: str) -> None:
    away = replace(NODE, state=state)

    assert state in wide_row(away, NOW)
    assert row(away)[3] == state


def test_a_node_that_is_proven_not_to_hear_says_so_once() -> None:
    cut_off = replace(NODE, state="cut_off", proof="cut_off")
    cells = dict(zip(WIDE, wide_row(cut_off, NOW), strict=True))

    assert (cells["proof"], cells["health"]) == ("cut off", "OK")
    assert row(cut_off)[3] == "cut off"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_eighty_columns_are_enough_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    gateway = replace(NODE, id="gateway-natal-2", state="over-budget", queued=120, actions=MANY)

    show_all([NODE, gateway, replace(NODE, actions=MANY, action_health={MANY[1]: "RECOVERING"})], is_wide=False)

    drawn = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, drawn.splitlines())) <= 80, drawn
    shown = drawn.replace(",", " ").split()
    assert {gateway.id, "over-budget", "(RECOVERING)", *MANY} <= set(shown)


@pytest.mark.parametrize(
    ("columns", "is_wide", "is_all_shown"), [(80, False, False), (80, True, True), (160, False, True)]
)
def test_all_columns_are_shown_where_they_fit_or_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, columns: int, is_wide: bool, is_all_shown: bool
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))

    show_all([NODE], is_wide=is_wide)

    assert all(name in screen.getvalue() for name in ("protocol", "last seen", "load")) is is_all_shown


def test_all_columns_go_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stdout", pipe)

    show_all([NODE], is_wide=False)

    assert all(name in pipe.getvalue().splitlines()[0] for name in WIDE)


def test_an_endpoint_that_is_not_called_is_seen_beside_the_ways_that_are_left() -> None:
    refused = replace(NODE, endpoint_refused="it is foreign")

    assert "AMQP (HTTP refused)" in wide_row(refused, NOW)
    assert "(HTTP refused)" in wide_row(replace(refused, protocol=""), NOW)


def test_sizes_have_the_unit_that_reads_best() -> None:
    sizes = (0, 999, 1_000, 9_949, 9_960, 340_000, 999_499, 999_600, 5_000_000_000, 7 * 10**12)

    assert [shown_bytes(each) for each in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "9.9 kB",
        "10 kB",
        "340 kB",
        "999 kB",
        "1.0 MB",
        "5.0 GB",
        "7 TB",
    ]
