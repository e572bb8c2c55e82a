"""From the managers' rows to what people see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from canoa.clock import as_time, as_time_or_none
from canoa.execution.health import Health, health
from canoa.execution.link_budget import LinkUse
from canoa.execution.plan import actions_of
from canoa.execution.plan_writing import document
from canoa.execution.proof import OUT
from canoa.recorder import showing
from canoa.recorder.routed_views import (
    AttemptView,
    CatalogueEntry,
    ConsideredView,
    ExplainView,
    NodeView,
    PlanView,
    StepView,
    StoryView,
)
from canoa.urn import action_urn, task_urn
from canoa.vocabulary import HTTP, MQTT_UNHEARD, protocol_of
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from canoa.execution.explaining import Explained
    from canoa.execution.health import BreakerSettings
    from canoa.execution.placement import Placement
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import AttemptRow
    from canoa.store.port import TaskRow
    from canoa.store.routed_port import BreakerRow, NodeRow, StepRow
    from canoa.vocabulary import ActionName, NodeId

HERE: Final = "here"
SILENT: Final = "silent"
UNREACHABLE: Final = "unreachable"
LEFT: Final = "left"
OVER_BUDGET: Final = "over-budget"
FULL: Final = "full"

_NEAR: Final = {
    "prefer": "nodes of the site {} will be preferred",
    "require": "only nodes of the site {} will do",
}


class StepOf(NamedTuple):
    """A plan's step. `sources`: the steps that its input comes from."""

    plan: str
    step: str
    sources: Sequence[str]


# --- Tasks ----------------------------------------------------------------------------------------------


def story(row: TaskRow, plan: Plan, steps: Sequence[StepRow]) -> StoryView:
    return StoryView(task=showing.task(row), plan=plan.name, steps=[step(each, plan) for each in steps])


def step(row: StepRow, plan: Plan) -> StepView:
    attempts = _attempts(row)
    return StepView(
        name=row.name,
        action=row.action,
        after=list(plan.steps[row.step].after) if row.step < len(plan.steps) else [],
        state=row.state.value,
        outcome=None if row.outcome is None else row.outcome.value,
        node_id=attempts[-1].node_id if attempts else None,
        error=row.error,
        ready_at=as_time_or_none(row.ready_ms),
        due_at=as_time_or_none(row.due_ms),
        ended_at=as_time_or_none(row.ended_ms),
        attempts=attempts,
        compensates=row.compensates,
    )


def _attempts(row: StepRow) -> list[AttemptView]:
    """A step is ready again after every attempt, once it has waited long enough; its row knows the last time only. An
    earlier one queued since the attempt before it ended."""
    free_ms: int | None = None
    shown: list[AttemptView] = []
    for each in row.attempts:
        known = [at_ms for at_ms in (free_ms, row.ready_ms) if at_ms is not None and at_ms <= each.sent_ms]
        shown.append(_attempt(each, max(known, default=None)))
        free_ms = each.ended_ms or each.sent_ms
    return shown


def _attempt(row: AttemptRow, ready_ms: int | None) -> AttemptView:
    """Two clocks may tell that it began before it was sent, or longer ago than it ran: that is shown as nothing."""
    return AttemptView(
        attempt=row.attempt,
        node_id=row.node_id,
        why=row.why,
        passed=list(row.passed),
        sent_at=as_time(row.sent_ms),
        started_at=as_time_or_none(row.started_ms),
        ended_at=as_time_or_none(row.ended_ms),
        outcome=row.outcome,
        error=row.error,
        queued_ms=_between(ready_ms, row.sent_ms),
        travelled_ms=_between(row.sent_ms, row.started_ms),
        ran_ms=_between(row.started_ms, row.ended_ms),
    )


def _between(from_ms: int | None, until_ms: int | None) -> int | None:
    return None if from_ms is None or until_ms is None else max(0, until_ms - from_ms)


# --- Plans and nodes --------------------------------------------------------------------------------------


def plan(known: Plan) -> PlanView:
    return PlanView(
        name=known.name, task_id=task_urn(known.name), actions=[*actions_of(known)], document=document(known)
    )


def nodes(
    rows: Iterable[NodeRow],
    breakers: Iterable[BreakerRow],
    queued: Mapping[NodeId, int],
    *,
    now_ms: int,
    settings: BreakerSettings,
    silent_after_s: float,
    max_queued: int,
    link_use: Callable[[NodeRow], LinkUse] = lambda _: LinkUse(),
    endpoint_refusal: Callable[[NodeRow], str] = lambda _: "",
    way: Callable[[NodeRow], str] = lambda _: "",
) -> list[NodeView]:
    """By layer, from the edge to the cloud, then by id."""
    by_place = {(each.node_id, each.action): each for each in breakers}
    order = ["EDGE", "FOG", "CLOUD"]

    def shown(row: NodeRow) -> NodeView:
        states = {each: health(by_place.get((row.node_id, each)), now_ms, settings) for each in row.actions}
        use, refused = link_use(row), endpoint_refusal(row)
        hidden = {MQTT_UNHEARD, HTTP} if refused else {MQTT_UNHEARD}
        ways = tuple(each for each in row.all_ways if each not in hidden)
        return NodeView(
            id=row.node_id,
            layer=row.layer.value,
            site=row.site,
            type=row.type,
            protocol="+".join(map(protocol_of, ways)),
            way=protocol_of(way(row)) if row.actions else "",
            closed=[protocol_of(each) for each in row.closed if each in ways],
            endpoint=row.endpoint,
            labels=row.labels,
            actions=list(row.actions),
            state=_absence(row, now_ms, silent_after_s, has_way=bool(ways))
            or _fullness(is_over=bool(use.over_why), is_full=queued.get(row.node_id, 0) >= max_queued),
            proof=row.proof,
            health=health(by_place.get((row.node_id, "")), now_ms, settings).value,
            action_health={name: state.value for name, state in states.items() if state is not Health.OK},
            load=row.load,
            queued=queued.get(row.node_id, 0),
            registered_at=as_time(row.registered_ms),
            seen_at=as_time(row.seen_ms),
            sent_bytes=use.out_bytes,
            received_bytes=use.in_bytes,
            link_budget=row.link_budget,
            over_budget=use.over_why,
            endpoint_refused=refused,
        )

    return [shown(row) for row in sorted(rows, key=lambda row: (order.index(row.layer.value), row.node_id))]


def _absence(row: NodeRow, now_ms: int, silent_after_s: float, *, has_way: bool) -> str | None:
    if not row.actions:
        return LEFT
    if not has_way:
        return UNREACHABLE
    if row.proof in OUT:
        return row.proof
    if now_ms - row.seen_ms > silent_after_s * 1000:
        return SILENT
    return None


def _fullness(*, is_over: bool, is_full: bool) -> str:
    """Of one that is there."""
    if is_over:
        return OVER_BUDGET
    return FULL if is_full else HERE


def catalogue(rows: Iterable[NodeRow], shown: Iterable[NodeView]) -> list[CatalogueEntry]:
    """What can be asked for, and who would do it: those that are here, and not down."""
    able = {each.id: each for each in shown if each.state == HERE and each.health != Health.DOWN}
    offers: dict[ActionName, list[NodeRow]] = {}
    for row in rows:
        for name in row.actions:
            offers.setdefault(name, []).append(row)
    return [_entry(name, offering, able) for name, offering in sorted(offers.items())]


def _entry(name: ActionName, offering: Sequence[NodeRow], able: Mapping[str, NodeView]) -> CatalogueEntry:
    nodes = [each for each in offering if each.node_id in able and _is_up(able[each.node_id], name)]
    limits = next((each.limits[name] for each in offering if name in each.limits), ActionLimits())
    return CatalogueEntry(
        action=name,
        urn=action_urn(name),
        nodes=sorted(each.node_id for each in nodes),
        layers=sorted({each.layer.value for each in nodes}),
        timeout_ms=limits.timeout,
        retry=limits.retry,
    )


def _is_up(node: NodeView, action: str) -> bool:
    return node.action_health.get(action) != Health.DOWN


def explanation(known: Explained, site: str = "", of: StepOf | None = None) -> ExplainView:
    """`site`: where it was said that its input comes from."""
    note = _near_note(known.placement, site, of)
    shown = replace(_explanation(known), note=note)
    return shown if of is None else replace(shown, plan=of.plan, step=of.step)


def _near_note(placement: Placement | None, site: str, of: StepOf | None) -> str:
    if placement is None or not placement.near:
        return ""
    sources = of.sources if of is not None else []
    if site:
        return f"as if what it gets came from {site}" if sources else f"called from {site}"
    if sources:
        where = f"where {' and '.join(sources)} ran"
        return f"{_NEAR[placement.near].format(where)}; which one that is, is not known before"
    return f"{_NEAR[placement.near].format('of its caller')}; which one that is, was not said"


def _explanation(known: Explained) -> ExplainView:
    able = [each for each in known.considered if not each.ruled_out]
    return ExplainView(
        action=known.action,
        routing=known.routing.value,
        node_id=able[0].node_id if able else None,
        considered=[
            ConsideredView(
                node_id=each.node_id,
                layer=each.layer.value,
                site=each.site,
                score=each.score,
                why=each.why,
                ruled_out=each.ruled_out,
            )
            for each in known.considered
        ],
    )
