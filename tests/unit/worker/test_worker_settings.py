"""A worker in one's own program is as the settings say, save what the program says itself."""

from __future__ import annotations

from canoa.settings import Settings
from canoa.vocabulary import Layer
from canoa.worker.settings import worker_settings

OURS = Settings(
    layer=Layer.FOG, site="natal", labels="gpu=yes,line=3", link_budget="10MB/day", outbox="none", join=False
)


def test_what_is_not_said_is_as_the_settings_have_it() -> None:
    made = worker_settings(OURS, layer=None, site=None, labels=None, node_id=None, concurrency=3)

    assert (made.layer, made.site, made.labels) == (Layer.FOG, "natal", {"gpu": "yes", "line": "3"})
    assert (made.link_budget, made.outbox, made.join) == ("10MB/day", "", False)
    assert (made.node_id, made.concurrency) == ("", 3)


def test_what_is_said_counts_also_where_it_is_empty() -> None:
    made = worker_settings(OURS, layer=Layer.EDGE, site="", labels={}, node_id="gw-7")

    assert (made.layer, made.site, made.labels, made.node_id) == (Layer.EDGE, "", {}, "gw-7")
