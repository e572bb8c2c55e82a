"""The desk's other half: routed tasks with their steps, plans, and the nodes that managers know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from canoa.action import Options
from canoa.client import routed
from canoa.clock import now_ms
from canoa.compensating import check_compensations
from canoa.errors import ArgumentsRefused, NobodyManages, NotRouted, SettingError, UnknownNode
from canoa.execution.outcome import Outcome
from canoa.execution.placement import check_site
from canoa.execution.plan import actions_of
from canoa.execution.plan_reading import plan_from_document
from canoa.execution.step_moves import Need, Verdict
from canoa.execution.step_records import encode_plan, outline_of
from canoa.planned_arguments import check_arguments
from canoa.recorder import routed_showing as showing
from canoa.recorder.routed_views import (
    CatalogueEntry,
    ExplainView,
    NodeView,
    OutputView,
    PlanView,
    Registered,
    RoutedRequest,
    StoryView,
)
from canoa.recorder.views import Submitted
from canoa.urn import action_name, task_name, task_urn
from canoa.wire.codec import ANY, ContentType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from canoa.action import Action
    from canoa.broker.port import Message
    from canoa.execution.explaining import Explained
    from canoa.execution.plan import Plan
    from canoa.recorder.managing import Managing
    from canoa.recorder.views import SubmitOptions
    from canoa.store.port import TaskRow
    from canoa.store.routed_port import RoutedStore, StepRow
    from canoa.vocabulary import ActionName, TaskId
    from canoa.wire.sapparchi import RegistrationAck


class RoutedDesk:
    """Every question raises `NobodyManages` where no manager runs in this process. `store`: the recorder's; `forward`:
    asks a manager in another process, since anybody may be asked to cancel. `actions`: that are known here by their
    parameters."""

    def __init__(
        self,
        *,
        max_payload_bytes: int,
        store: RoutedStore | None = None,
        forward: Callable[[TaskId], Awaitable[Any]] | None = None,
        actions: Mapping[ActionName, Action[..., Any, Any]] | None = None,
    ) -> None:
        self.managing: Managing | None = None
        """Set once the manager runs."""
        self._asked_here = routed.Caller(None, max_payload_bytes)  # who asks stands elsewhere, and may say where
        self._store = store
        self._forward = forward
        self._actions = actions or {}

    @property
    def trouble(self) -> str | None:
        """Why no routed task gets on just now."""
        return "no manager runs here" if self.managing is None else self.managing.trouble

    # --- Submitting ---------------------------------------------------------------------------------

    async def submit(self, requests: Sequence[RoutedRequest]) -> list[Submitted]:
        """All or nothing, stored when it returns. Raises `ArgumentsRefused` where they do not fit an action that is
        known here; of others, nodes find out."""
        manager = self._manager()
        messages = [self._message(each) for each in requests]
        accepted = await manager.accept(messages)
        return [
            Submitted(id=message.message_id or "", action=message.type or "", is_new=answer.is_new)
            for message, answer in zip(messages, accepted, strict=True)
        ]

    def _message(self, request: RoutedRequest) -> Message:
        options = _options(request.options, is_plan=request.plan is not None)
        if (request.plan is None) == (request.action is None):
            raise SettingError("a routed task is of one action, or of one plan; give `action` or `plan`")
        if request.plan is not None:
            known = task_name(request.plan) if isinstance(request.plan, str) else self._read(request.plan)
            return routed.of_plan(known, request.input, options, self._asked_here).message
        if not isinstance(request.input, dict):
            raise ArgumentsRefused("an action's arguments are an object keyed by parameter")
        body = msgspec.json.encode(request.input)
        name = action_name(request.action or "")
        if (action := self._actions.get(name)) is not None:
            action.signature.decode(action.signature.routed_body(body), ContentType.JSON.value)
        return routed.of_action(name, body, options, self._asked_here).message

    # --- One task -----------------------------------------------------------------------------------

    async def is_routed(self, task_id: TaskId) -> bool:
        return self._store is not None and await self._store.plan_of(task_id) is not None

    async def cancel(self, task_id: TaskId) -> None:
        if self.managing is None and self._forward is not None:
            await self._forward(task_id)
        else:
            await self._manager().cancel(task_id)

    async def rerun(self, task_id: TaskId) -> None:
        """The steps that did not succeed. Raises `SettingError` where there is nothing to run again."""
        await self._plan_of(task_id)
        if await self._manager().rerun(task_id) is not Verdict.TAKEN:
            raise SettingError(f"task {task_id!r:.80} has not ended, or ended well; only what went wrong is run again")

    async def story(self, row: TaskRow) -> StoryView:
        plan = await self._plan_of(row.id)
        return showing.story(row, plan, await self._manager().store.steps(row.id))

    async def output(self, task_id: TaskId, name: str) -> OutputView:
        """What one step gave, also while others run, or after they failed."""
        plan = await self._plan_of(task_id)
        steps: dict[str, StepRow] = {each.name: each for each in await self._manager().store.steps(task_id)}
        if name not in steps:
            raise SettingError(f"task {task_id!r:.80} has no step {name!r:.80}; it has {', '.join(list(steps)[:20])}")
        is_ok = steps[name].outcome is Outcome.OK  # what it gave in a run before was undone
        body = await self._manager().store.step_output(task_id, steps[name].step) if is_ok else None
        output = None if body is None else ANY.decode(body, None)
        return OutputView(step=showing.step(steps[name], plan), has_output=body is not None, output=output)

    async def _plan_of(self, task_id: TaskId) -> Plan:
        plan = await self._manager().store.plan_of(task_id)
        if plan is None:
            raise NotRouted(task_id)
        return plan

    # --- Plans --------------------------------------------------------------------------------------

    async def plans(self) -> list[PlanView]:
        return [showing.plan(each) for each in await self._manager().store.plans()]

    async def plan(self, name: str) -> PlanView:
        return showing.plan(await self._registered(name))

    def _read(self, document: dict[str, Any]) -> Plan:
        plan = plan_from_document(document)
        check_arguments(plan, self._actions)
        check_compensations(plan, self._actions)
        return plan

    async def _registered(self, name: str) -> Plan:
        return await self._manager().registered(task_name(name))

    async def register(self, name: str, document: dict[str, Any]) -> Registered:
        """In place of the one that had the name. Tasks that run keep the plan that they began with. Nodes may join
        later: what none of them ever offered is told, and not refused before somebody submits it."""
        plan = self._read(document)
        if plan.name != task_name(name):
            raise SettingError(f"the plan is called {plan.name!r:.80}, and is to be registered as {name!r:.80}")
        is_new = await self._manager().put_plan(plan)
        unoffered = self._manager().unoffered(actions_of(plan))
        return Registered(name=plan.name, task_id=task_urn(plan.name), is_new=is_new, unoffered=[*unoffered])

    # --- Nodes --------------------------------------------------------------------------------------

    async def nodes(self) -> list[NodeView]:
        """From the edge to the cloud."""
        manager = self._manager()
        return showing.nodes(
            await manager.store.nodes(),
            await manager.store.breakers(),
            await manager.store.queued_for(),
            now_ms=now_ms(),
            settings=manager.breaker_settings,
            silent_after_s=manager.silent_after_s,
            max_queued=manager.node_inbox,
            link_use=manager.link_use,
            endpoint_refusal=manager.endpoint_refusal,
            way=manager.way,
        )

    async def node(self, node_id: str) -> NodeView:
        for each in await self.nodes():
            if each.id == node_id:
                return each
        raise UnknownNode(node_id)

    async def catalogue(self) -> list[CatalogueEntry]:
        return showing.catalogue(await self._manager().store.nodes(), await self.nodes())

    async def explain(self, action: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        """Where a call from that site would go now, and why."""
        need = Need(action_name(action), now_ms(), size_bytes=size_bytes, site=site)
        return showing.explanation(self._explained(need), site)

    async def explain_step(self, plan: str, step: str, *, size_bytes: int = 0, site: str = "") -> ExplainView:
        """Where that step of a registered plan would go now, by what the plan says of it, and why. `site`: where what
        it gets comes from."""
        outline = outline_of(encode_plan(await self._registered(plan)))
        place = {each.name: at for at, each in enumerate(outline.steps)}.get(step)
        if place is None:
            names = ", ".join(each.name for each in outline.steps[:20])
            raise SettingError(f"plan {outline.plan.name!r:.80} has no step {step!r:.80}; it has {names}")
        said = outline.steps[place]
        need = Need(said.action, now_ms(), frozenset(), said.retries, size_bytes, said.placement, (), site)
        sources = [outline.steps[at].name for at in outline.sources[place]]
        return showing.explanation(self._explained(need), site, showing.StepOf(outline.plan.name, step, sources))

    def _explained(self, need: Need) -> Explained:
        if need.size_bytes < 0:
            raise SettingError(f"size_bytes is {need.size_bytes}; use 0 or more")
        check_site(need.site)
        return self._manager().explain(need)

    async def register_node(self, message: Message) -> RegistrationAck:
        """A registration that came over HTTP."""
        return await self._manager().register(message)

    async def take_result(self, message: Message) -> None:
        """A node's answer that came over HTTP."""
        await self._manager().take_result(message)

    def _manager(self) -> Managing:
        if self.managing is None:
            raise NobodyManages("no manager runs here, so nothing is routed; start one: canoa manager")
        return self.managing


def _options(given: SubmitOptions, *, is_plan: bool) -> Options:
    """Of a plan, each step says its own limits."""
    if is_plan and (given.timeout is not None or given.retry is not None):
        raise SettingError("a plan's steps have limits of their own; write `timeout` and `retry` into the plan")
    return Options(
        dispatch="routed",
        priority=given.priority,
        timeout=given.timeout,
        retry=given.retry,
        queue_timeout=given.queue_timeout,
        idempotency_key=given.idempotency_key,
        after=given.after,
        at=given.at,
        site=given.site,
    )
