"""One row per node: what people look for first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from canoa.cli.nodes import COLUMNS, row, shown_bytes
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


def test_a_row_says_where_a_node_stands_and_how_it_is() -> None:
    assert dict(zip(COLUMNS, row(NODE, NOW), strict=True)) == {
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


def test_an_action_that_is_down_is_named_beside_the_node() -> None:
    assert "WARNING (continuum.fetch DOWN)" in row(
        replace(NODE, health="WARNING", action_health={"continuum.fetch": "DOWN"}), NOW
    )


def test_a_node_that_is_not_there_says_so_in_place_of_its_health() -> None:
    assert "silent" in row(replace(NODE, state="silent"), NOW)
    assert "left" in row(replace(NODE, state="left", actions=[]), NOW)


def test_a_node_that_is_proven_not_to_hear_says_so_once() -> None:
    cells = dict(zip(COLUMNS, row(replace(NODE, state="cut_off", proof="cut_off"), NOW), strict=True))

    assert (cells["proof"], cells["health"]) == ("cut off", "OK")


def test_a_node_whose_link_budget_is_used_up_says_so() -> None:
    assert "over-budget" in row(replace(NODE, state="over-budget"), NOW)


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
