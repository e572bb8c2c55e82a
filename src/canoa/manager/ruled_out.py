"""What keeps a node from an attempt, in words: for `canoa explain` about now, and for the story of what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.manager.catalogue import Presence
from canoa.manager.pools import WHOLE_NODE

if TYPE_CHECKING:
    from canoa.execution.placement import Placement
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.placing import Placer
    from canoa.manager.pools import Doubtful
    from canoa.manager.routing.port import Candidate
    from canoa.store.routed_port import BreakerRow, NodeRow
    from canoa.vocabulary import ActionName

_AWAY: Final = {
    Presence.SILENT: "silent: no sign of life for too long",
    Presence.UNREACHABLE: "unreachable: it has neither a queue nor an address",
    Presence.LEFT: "it left",
    Presence.DEAF: "deaf: what is sent to its queue is not answered",
    Presence.CUT_OFF: "cut off: nobody listens on its queue, and it may come back",
    Presence.DEAD: "dead: nobody has listened on its queue for longer than its grace, or there is no queue",
}


class Placing(NamedTuple):
    """Where an attempt may go: as its step says, or else its action."""

    placement: Placement | None
    whose: str
    sites: frozenset[str]  # to which it is to be near

    def is_far(self, site: str) -> bool:
        return bool(self.sites) and site not in self.sites

    def allows(self, candidate: Candidate) -> bool:
        placement = self.placement
        if placement is None:
            return True
        is_barred = placement.near == "require" and self.is_far(candidate.site)
        return placement.allows(candidate.layer, candidate.labels) and not is_barred


def elsewhere_why(candidate: Candidate, action: ActionName, placing: Placing, placer: Placer, *, is_used: bool) -> str:
    """Of a healthy one that the placement leaves out. `is_used`: others of its layer are not."""
    placement = placing.placement
    assert placement is not None  # without one, nobody is left out
    tide = placer.tide(action, candidate.layer, placement, placing.sites)
    if missing := placement.missing(candidate.labels):
        return f"it has no label {', '.join(missing)}"
    if placement.layers and candidate.layer not in placement.layers:
        return f"the {placing.whose} may run in {', '.join(placement.layers)}"
    if placing.is_far(candidate.site) and (is_used or placement.near == "require"):
        return f"it is not in {', '.join(sorted(placing.sites))}, where the input comes from"
    if tide.is_out:
        return f"its layer {'is slow' if tide.is_slow else 'has enough to do'}: the next one gets what comes"
    return "another layer is preferred"


def last_circuit(doubtful: Doubtful) -> BreakerRow:
    """That is open for longest."""
    return max(doubtful.open_circuits, key=lambda row: row.down_until_ms)


def whose_circuit(circuit: BreakerRow) -> str:
    return "the node" if circuit.action == WHOLE_NODE else "the action there"


def away_why(catalogue: Catalogue, row: NodeRow, now_ms: int) -> str:
    state = catalogue.state(row, now_ms)
    if state == Presence.UNREACHABLE and (refused := catalogue.endpoint_refusal(row)):
        return f"unreachable: its endpoint is not called: {refused}"
    return next((why for presence, why in _AWAY.items() if presence == state), "not in routing yet")
