"""How a worker is to run: what it may do at once, where it stands, and when it gives up waiting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from canoa.errors import SettingError
from canoa.execution.link_budget import parse_budget
from canoa.execution.placement import check_labels, check_site, parse_labels
from canoa.vocabulary import Drop, Layer
from canoa.worker.health_page import health_page
from canoa.worker.outbox import OutboxLimits
from canoa.worker.outbox_writer import OutboxWriter

if TYPE_CHECKING:
    from canoa.settings import Settings

_NODE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""It becomes part of queue names, topics and addresses."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    concurrency: int = 50  # attempts at once, on the loop and in threads; higher suits waiting, lower suits computing
    processes: int = 0  # attempts at once of cpu=True actions; 0: as many as there are processors
    drain_s: float = 30.0  # how long running attempts may go on after a stop; longer wastes less work
    layer: Layer = Layer.CLOUD
    node_id: str = ""  # empty: host name and process id
    site: str = ""
    labels: dict[str, str] = {}  # what placements may ask for
    join: bool = True  # be a node that managers can reach; false: take work from the pool alone
    manager_url: str = ""  # of managers, by comma: whether one is up, and for HTTP; empty: heartbeats tell enough
    mqtt: str = ""  # mqtt://user:password@host:1883 of an MQTT broker to join by; empty: none
    http: str = ""  # host:port where messages are taken over HTTP; empty: nowhere. Port 0 takes a free one
    endpoint: str = ""  # the address under which managers find that; empty: made of host and port
    node_token: str = ""  # shown to managers that ask nodes for one
    link_within_s: float | None = None  # how long its first link to a broker may take in all; none: as adapters have it
    grace_s: float = 0.0  # cut off for longer, it counts as dead; longer suits bad links; 0: as the managers think
    prove_after_s: float = 30.0  # without a message, it sends itself one; lower finds sooner that it is deaf
    link_budget: str = ""  # what managers may send to and get from it, such as 10MB/day; empty: anything
    journal: str = ""  # file that tells which kept tasks run, where the broker dies with the process; empty: none

    outbox: str = ""  # file in which answers to managers wait while the link is down; empty: none
    outbox_max_messages: int = OutboxLimits().max_messages
    outbox_max_bytes: int = OutboxLimits().max_bytes
    outbox_drop: Drop = Drop.OLDEST  # what gives way when it is full
    outbox_always: bool = False  # every answer is on disk before it is sent; true runs less twice, and is slower

    @property
    def managers(self) -> list[str]:
        """Their addresses."""
        return [url.strip() for url in self.manager_url.split(",") if url.strip()]

    def __post_init__(self) -> None:
        if self.outbox_always and not self.outbox:
            raise SettingError(
                "outbox_always needs an outbox: give the worker a name (--node-id), or a file (--outbox)"
            )
        self._outbox_limits()  # or what is wrong with them
        if self.concurrency < 1 or self.processes < 0 or self.drain_s < 0:
            raise SettingError(
                f"concurrency={self.concurrency}, processes={self.processes}, drain={self.drain_s:g}: "
                f"use at least 1 attempt at once, and no negative numbers"
            )
        if self.grace_s < 0 or self.prove_after_s <= 0:
            raise SettingError(
                f"grace_s={self.grace_s:g}, prove_after_s={self.prove_after_s:g}: use no negative grace, and some "
                f"seconds of quiet"
            )
        if self.node_id and not _NODE_ID.fullmatch(self.node_id):
            raise SettingError(f"node_id {self.node_id!r:.150}: use 1 to 128 letters, digits, '-', '_', '.' or ':'")
        check_labels(self.labels)
        if self.link_budget:
            parse_budget("link_budget", self.link_budget)
        for url in self.managers:
            health_page(url)  # or what is wrong with it
        if self.http and not self.managers:
            raise SettingError(f"http={self.http!r:.80} without a manager's address; give manager_url, too")
        check_site(self.site)

    def new_outbox(self) -> OutboxWriter | None:
        """To be opened on the event loop that asks."""
        if not self.outbox:
            return None
        return OutboxWriter(Path(self.outbox), self._outbox_limits())

    def _outbox_limits(self) -> OutboxLimits:
        return OutboxLimits(
            max_messages=self.outbox_max_messages, max_bytes=self.outbox_max_bytes, drop=self.outbox_drop
        )


def worker_settings(ours: Settings, **said: Any) -> WorkerSettings:
    """As the app's settings have it, save what is said otherwise; None says nothing."""
    known: dict[str, Any] = {
        "layer": ours.layer,
        "site": ours.site,
        "labels": parse_labels(ours.labels),
        "join": ours.join,
        "manager_url": ours.manager_url,
        "link_budget": ours.link_budget,
        "outbox": "" if ours.outbox == "none" else ours.outbox,
        "outbox_max_messages": ours.outbox_max_messages,
        "outbox_max_bytes": ours.outbox_max_bytes,
        "outbox_drop": ours.outbox_drop,
        "outbox_always": ours.outbox_always and bool(ours.outbox),
    }
    return WorkerSettings(**known | {name: value for name, value in said.items() if value is not None})
