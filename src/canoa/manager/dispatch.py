"""A manager's work on tasks: requests in, steps out to nodes, answers in, results out. Owns nothing that it could lose.

Which nodes there are, and which of them gets a step, is the other half: see `nodes.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from canoa.broker import topology
from canoa.broker.port import Message, Publication
from canoa.clock import now_ms
from canoa.execution.step_moves import CancelTask, Rerun, StepLost, Verdict
from canoa.manager.answers import Answers
from canoa.manager.intake import Intake
from canoa.manager.metrics import ManagerStats
from canoa.manager.moving import Moving
from canoa.manager.refusing import Refusals
from canoa.manager.sending import Sender
from canoa.manager.telling import Telling
from canoa.manager.timers import Timers
from canoa.store.telling import tell
from canoa.vocabulary import TaskId
from canoa.wire.ids import new_task_id
from canoa.wire.sapparchi import parse_request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from canoa.broker.events import Events
    from canoa.broker.port import Broker
    from canoa.execution.step_moves import Route
    from canoa.execution.step_settings import StepSettings
    from canoa.manager.links import Links
    from canoa.store.routed_port import Due, FullStore, Move, Moved
    from canoa.transports.reaching import Reaching
    from canoa.vocabulary import NodeId

PAGE: Final = 500


class Dispatch:
    """`on_moved` hears of moves that were written. `reaching`: how messages get to nodes. `links`: counts what nodes
    answer. `owner`: which manager this is. `on_canary` hears of canaries that were answered among the steps."""

    def __init__(
        self,
        broker: Broker,
        store: FullStore,
        route: Route,
        *,
        events: Events,
        on_moved: Callable[[Sequence[tuple[Move, Moved]]], None],
        reaching: Reaching,
        links: Links,
        owner: str,
        steps: StepSettings,
        limit_bytes: int,
        on_canary: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.stats = ManagerStats()
        self._broker = broker
        self._store = store
        self._on_moved = on_moved
        self._loop = asyncio.get_running_loop()
        self._moved: list[tuple[Move, Moved]] = []  # in this turn of the loop
        self._telling = Telling(events, self.stats)
        self.moving = Moving(
            store, route, self._after, ahead=lambda attempts: self.sender.send(attempts), settings=steps
        )
        self.sender = Sender(broker, store, self.moving, stats=self.stats, reaching=reaching)
        self.answers = Answers(
            self.moving, self.sender, stats=self.stats, links=links, limit_bytes=limit_bytes, on_canary=on_canary
        )
        self.intake = Intake(
            store,
            route,
            self.moving,
            self.sender,
            refusals=Refusals(broker),
            stats=self.stats,
            limit_bytes=limit_bytes,
        )
        self.timers = Timers(
            store, self.moving, owner=owner, on_written=self.stats.written, on_trouble=self.stats.in_trouble
        )

    def loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        """By name; whoever runs them ends when one of them raises."""
        return {"owed": self.sender.run(), "timers": self.timers.run()}

    async def cancel(self, task_id: TaskId) -> Verdict:
        """End it, unless it has ended, and tell the nodes."""
        return (await self.moving.apply(CancelTask(task_id=task_id, now_ms=now_ms()))).verdict

    async def rerun(self, task_id: TaskId) -> Verdict:
        """Run the steps again that did not succeed."""
        return (await self.moving.apply(Rerun(task_id=task_id, now_ms=now_ms()))).verdict

    async def lose(self, node_id: NodeId, why: str) -> int:
        """All that is out at a node goes to others; says how many steps that were."""
        count = 0
        while request_ids := await self._store.sent_steps(node_id, limit=PAGE):
            moves = [move for each in request_ids if (move := _lost(each, why)) is not None]
            await asyncio.gather(*map(self.moving.apply, moves))
            count += len(moves)
            if len(request_ids) < PAGE:
                break
        return count

    async def send_again(self, why: str) -> int:
        """For a broker that forgot what was sent: nobody may have it. No node is to blame."""
        after: Due | None = None
        count = 0
        while page := await self._store.open_steps(limit=PAGE, after=after):
            out = [each for each in page if each.send]
            await asyncio.gather(*(self.moving.apply(_given_back(each, why)) for each in out))
            count += len(out)
            after = page[-1]
        return count

    async def stop(self) -> None:
        """What is in hand is written, or left to other managers."""
        self.intake.stop()
        self.answers.stop()
        await self.sender.stop()
        await self.timers.stop()
        await self.moving.aclose()
        self._look_back()

    def _after(self, moves: Sequence[Move], answers: Sequence[Moved]) -> None:
        """What somebody waits for leaves in this turn of the loop; whatever else a move means comes in the next."""
        for moved in answers:
            if moved.owed:
                tell(self.sender.send, moved.owed)
        if answers and not self._moved:
            self._loop.call_soon(self._look_back)  # before its caller's next request, which may need the place
        self._moved += zip(moves, answers, strict=True)

    def _look_back(self) -> None:
        written, self._moved = self._moved, []
        if not written:  # the end came first
            return
        self.stats.written()
        tell(self._on_moved, written)
        tell(self.timers.note, [due_ms for _, moved in written for due_ms in moved.due_ms])
        for request_id in [each for _, moved in written for each in moved.cancel]:
            tell(self._call_off, request_id)
        tell(self._telling.on_written, written)

    def _call_off(self, request_id: str) -> None:
        """Who does not hear it works in vain: the answer will be late."""
        notice = Message(body=request_id.encode(), persistent=False, message_id=new_task_id(), type="canoa.cancel")
        self._broker.post(Publication(message=notice, exchange=topology.CANCEL, key="", mandatory=False), _ignored)


def _lost(request_id: str, why: str) -> StepLost | None:
    request = parse_request_id(request_id)
    if request is None:
        return None
    task_id, step, attempt, send = request
    return StepLost(task_id=TaskId(task_id), step=step, attempt=attempt, send=send, why=why, now_ms=now_ms())


def _given_back(out: Due, why: str) -> StepLost:
    return StepLost(
        task_id=out.task_id,
        step=out.step,
        attempt=out.attempt,
        send=out.send,
        why=why,
        is_returned=True,
        now_ms=now_ms(),
    )


def _ignored(_: Any) -> None:
    """Nobody listening is fine."""
