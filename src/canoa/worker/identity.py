"""What a node says of itself, by whichever way: who it is, where it stands, and what it offers."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import SettingError
from canoa.execution.policy import Policy
from canoa.logs import get_logger
from canoa.urn import action_urn
from canoa.vocabulary import ActionName, Layer
from canoa.wire import sapparchi
from canoa.wire.compression_policy import Compression
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from canoa.broker.port import HeaderValue

log = get_logger(__name__)

MAX_LIMITS_BYTES: Final = 64 * 1024
"""Of a header that must fit into one frame, with room for others."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself."""

    node_id: str
    is_made_up: bool  # the name, by this process: nobody will use it again
    layer: Layer
    site: str
    labels: dict[str, str]
    grace_s: float = 0.0  # that it may be cut off before it is dead; 0: as managers think
    policies: dict[ActionName, Policy]  # of what it offers
    endpoint: str = ""  # where it takes messages over HTTP; empty: nowhere
    ways: tuple[str, ...] = ()  # by which it is reached, where that is not its broker's queue alone
    link_budget: str = ""


def fixed_headers(identity: Identity, instance: str) -> dict[str, HeaderValue]:
    """Of its registrations. Raises `SettingError` where its actions say more than there is room for."""
    headers: dict[str, HeaderValue] = {
        sapparchi.INSTANCE: instance,
        sapparchi.VERSION: version("canoa"),
        sapparchi.BUNDLES: True,
        sapparchi.CANARIES: True,
        sapparchi.ENCODINGS: ",".join(Compression),
    }
    if identity.grace_s:
        headers[sapparchi.GRACE] = identity.grace_s
    if identity.site:
        headers[sapparchi.SITE] = identity.site
    if identity.ways:
        headers[sapparchi.WAYS] = ",".join(identity.ways)
    if identity.link_budget:
        headers[sapparchi.LINK_BUDGET] = identity.link_budget
    if identity.labels:
        headers[sapparchi.LABELS] = msgspec.json.encode(identity.labels).decode()
    limits = msgspec.json.encode({action_urn(name): _limits(each) for name, each in identity.policies.items()})
    if len(limits) <= MAX_LIMITS_BYTES:
        headers[sapparchi.LIMITS] = limits.decode()
    elif any(policy.placement is not None for policy in identity.policies.values()):
        raise SettingError(
            f"what {len(identity.policies)} actions say of themselves takes {len(limits):,} bytes, of "
            f"{MAX_LIMITS_BYTES:,} at most, and placements must be told; offer fewer actions in one worker"
        )
    else:
        log.warning("limits_not_told", actions=len(identity.policies), remedy="managers use their own for this node")
    return headers


def _limits(policy: Policy) -> ActionLimits:
    timeout_ms = None if policy.timeout_s is None else max(1, round(policy.timeout_s * 1000))
    return ActionLimits(
        timeout=timeout_ms,
        retry=policy.retries,
        routing=policy.routing or msgspec.UNSET,
        placement=policy.placement or msgspec.UNSET,
    )
