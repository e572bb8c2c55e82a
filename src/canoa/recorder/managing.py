"""What the desk needs of a manager in its process: to accept, cancel and rerun routed tasks, and to look at its store.

The manager itself is in `manager/`; a recorder without one refuses what is routed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from canoa.broker.port import Message
    from canoa.execution.explaining import Explained
    from canoa.execution.health import BreakerSettings
    from canoa.execution.link_budget import LinkUse
    from canoa.execution.plan import Plan
    from canoa.execution.step_moves import Need, Verdict
    from canoa.store.port import Accepted
    from canoa.store.routed_port import NodeRow, RoutedStore
    from canoa.vocabulary import ActionName, TaskId
    from canoa.wire.sapparchi import RegistrationAck


class Managing(Protocol):
    @property
    def id(self) -> str:
        """Another one with every start."""

    @property
    def store(self) -> RoutedStore: ...

    @property
    def breaker_settings(self) -> BreakerSettings: ...

    @property
    def silent_after_s(self) -> float:
        """A node without a sign of life for so long gets no work."""

    @property
    def node_inbox(self) -> int:
        """A node at which so many steps are out gets no more."""

    @property
    def trouble(self) -> str | None:
        """Why it cannot work just now; None: it can."""

    def unoffered(self, actions: Iterable[ActionName]) -> list[ActionName]:
        """Those that no node ever offered, as far as this manager knows."""

    def link_use(self, row: NodeRow) -> LinkUse:
        """What travelled to and from a node since it started."""

    def endpoint_refusal(self, row: NodeRow) -> str:
        """Why its endpoint is not called; empty: it may be, or it has none."""

    def way(self, row: NodeRow) -> str:
        """By which a node would be sent a message now; empty: by none."""

    async def accept(self, requests: Sequence[Message]) -> list[Accepted]:
        """Requests as they come on `topology.TASK_REQUESTS`: stored when it returns, all of them or none.

        Raises before anything is stored: `PlanRefused`, `UnknownPlan`, `UnknownAction` (nobody ever offered it),
        `ArgumentsRefused`, `PayloadTooLarge`.
        """

    async def registered(self, name: str) -> Plan:
        """The plan of that name. Raises `UnknownPlan`, with the nearest names."""

    async def put_plan(self, plan: Plan) -> bool:
        """Register it under its name, and tell whoever looks on; False: it was, exactly so."""

    async def cancel(self, task_id: TaskId) -> Verdict:
        """End it, unless it has ended, and tell the nodes."""

    async def rerun(self, task_id: TaskId) -> Verdict:
        """Run the steps again that did not succeed; `LATE` for a task that has not ended, or ended well."""

    async def register(self, message: Message) -> RegistrationAck:
        """A node's registration that came by no queue; written when it returns. Raises what is wrong with it."""

    async def take_result(self, message: Message) -> None:
        """A node's answer, likewise."""

    def explain(self, need: Need) -> Explained:
        """Where an attempt that needs so much would go now, and why. Raises `UnknownAction`."""
