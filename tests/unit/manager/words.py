"""Nodes, registrations and circuits as the tests speak of them."""

from __future__ import annotations

import json
from typing import Any

from canoa.broker.port import Message
from canoa.execution.step_moves import StepDue
from canoa.manager.claims import Claim, read_claim
from canoa.store.routed_port import BreakerRow, Move, Moved, NodeRow
from canoa.vocabulary import ActionName, Layer, NodeId, TaskId
from canoa.wire import sapparchi

RESIZE = ActionName("shop.resize")
PRICE = ActionName("shop.price")


def node(name: str, *actions: ActionName, **facts: Any) -> NodeRow:
    said: dict[str, Any] = {"layer": Layer.FOG, "version": 1} | facts
    return NodeRow(node_id=NodeId(name), actions=actions or (RESIZE,), **said)


def circuit(name: str, *, action: str = "", failures: int = 3, down_until_ms: int = 0, trial_ms: int = 0) -> BreakerRow:
    return BreakerRow(
        node_id=NodeId(name), action=action, failures=failures, down_until_ms=down_until_ms, trial_ms=trial_ms
    )


def written(moved: Moved, now_ms: int) -> list[tuple[Move, Moved]]:
    """By some move: whose it was says `moved`."""
    return [(StepDue(task_id=TaskId("t"), step=0, due_ms=now_ms, now_ms=now_ms), moved)]


def registration(
    name: str = "gw-7", *, instance: str = "", headers: dict[str, Any] | None = None, **said: Any
) -> Message:
    body: dict[str, Any] = {"nodeId": name, "endpoint": "http://127.0.0.7:80", "layer": "FOG", "type": "Python"}
    body |= {"actions": ["urn:sapparchi:Action:shop.resize"], "forceRegister": False} | said
    known = {sapparchi.INSTANCE: instance} if instance else {}
    return Message(body=json.dumps(body).encode(), headers=known | (headers or {}))


def claimed(name: str = "gw-7", *, instance: str = "", **said: Any) -> NodeRow:
    claim = read_claim(registration(name, instance=instance, **said))
    assert isinstance(claim, Claim)
    return claim.row
