"""What can be set about nodes: when they are silent, how floods of registrations are slowed, when a circuit opens."""

from __future__ import annotations

import msgspec

from canoa.execution.endpoints import DEFAULT, Allowed, parse_endpoints
from canoa.execution.health import BreakerSettings
from canoa.execution.link_budget import LinkBudget
from canoa.vocabulary import Layer, Routing
from canoa.wire.compression_policy import DEFAULT_POLICY, CompressionPolicy


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens are given to every node; nothing asks for them back yet."""

    silence_s: float = 150.0  # without a sign of life; lower finds the dead sooner, and loses those on bad links
    fingerprint_ttl_s: float = 300.0  # an unchanged registration is written again after this, in case it was lost
    ack_every_s: float = 1.0  # to one node; lower answers a flood with a flood
    grace_s: float = 60.0  # cut off before it is dead, of nodes that say nothing else; longer bridges longer cuts
    touch_every_s: float = 10.0  # how often signs of life are written down
    forget_after_s: float = 86_400.0  # of a node nobody has seen; its actions are unknown from then on
    max_nodes: int = 10_000  # each costs every manager memory; then those that left make room, or more are refused
    routing: Routing = Routing.ROUND_ROBIN  # for actions that do not say how their nodes are chosen
    breaker: BreakerSettings = BreakerSettings()
    compression: CompressionPolicy = DEFAULT_POLICY  # of messages to nodes that read it, by their layer
    link_budgets: dict[Layer, LinkBudget] = {}  # of all nodes of a layer together
    inbox: int = 100_000  # steps that may be out at one node; then others get them, or they wait in the store
    endpoints: Allowed = parse_endpoints("endpoints", DEFAULT)  # of nodes that may be called over HTTP
    own_ports: frozenset[int] = frozenset()  # where this program listens: no node is there
