"""The gate between a delivery and its lane: what is limited waits here for its place and its start.

Near ones are held; what waits for long goes back to the broker, on a rung, which is neither an attempt nor a crash.
Nothing starts without its reservation: while the limiter does not answer, it waits.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import random
from typing import TYPE_CHECKING, Final

from canoa.broker.topology import RUNGS_S
from canoa.execution import limits
from canoa.execution.backoff import pick_rung
from canoa.logs import get_logger
from canoa.worker.limiter import LocalLimiter, Patient
from canoa.worker.slots import Slots
from canoa.worker.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from canoa.broker.port import Delivery
    from canoa.execution.policy import Concurrency, Rate, Scope
    from canoa.vocabulary import ActionName
    from canoa.wire.task import Task
    from canoa.worker.limiter import Limiter
    from canoa.worker.offer import Offer
    from canoa.worker.running import Runner
    from canoa.worker.slots import Slot

log = get_logger(__name__)

HOLD_S: Final = 60.0
"""How long a delivery is held at most. Sending what cannot start yet back at once would send whole queues in circles;
holding it for long keeps it from others, and RabbitMQ ends links that hold a message for 30 minutes."""


class Permit:
    """Allows one delivery to run; `release` when it has."""

    __slots__ = ("_slot", "_slots")

    def __init__(self, slots: Slots | None = None, slot: Slot | None = None) -> None:
        self._slots = slots
        self._slot = slot

    def release(self) -> None:
        """Releasing twice is allowed."""
        slot, self._slot = self._slot, None
        if self._slots is not None and slot is not None:
            self._slots.give(slot)


class Gate:
    """One worker's. `shared`: where global limits are kept. `room`: how many may wait here for a place."""

    def __init__(self, runner: Runner, node_id: str, *, shared: Limiter, room: int) -> None:
        self._runner = runner
        self._patients: dict[Scope, Patient] = {"global": Patient(shared), "worker": Patient(LocalLimiter())}
        self._slots = {scope: Slots(node_id, patient, room=room) for scope, patient in self._patients.items()}
        self._turns: dict[ActionName, Turns] = {}
        self._entering: set[asyncio.Task[Permit | None]] = set()
        self._loop = asyncio.get_running_loop()

    # --- Passing --------------------------------------------------------------------------------------

    def enter(self, offer: Offer, delivery: Delivery, then: Callable[[Permit], None]) -> None:
        """`then` is called once it may run; never, if it went elsewhere."""
        self._start(offer, delivery).add_done_callback(partial(_passed, then))

    async def pass_suspect(self, offer: Offer, delivery: Delivery) -> Permit | None:
        """Return once it may run. None: it went elsewhere."""
        entering = self._start(offer, delivery, is_suspect=True)
        await asyncio.wait([entering])
        return _permit(entering)

    def _start(self, offer: Offer, delivery: Delivery, *, is_suspect: bool = False) -> asyncio.Task[Permit | None]:
        work = self._admit(offer, delivery, is_suspect=is_suspect)
        entering = self._loop.create_task(work, name=f"gate[{offer.name}]")
        self._entering.add(entering)
        entering.add_done_callback(partial(self._on_end, offer, delivery))
        return entering

    def _on_end(self, offer: Offer, delivery: Delivery, entering: asyncio.Task[Permit | None]) -> None:
        """Here, since a task that is cancelled before its first step runs nothing of its own."""
        self._entering.discard(entering)
        if entering.cancelled():
            offer.hand_back(delivery)
        elif (error := entering.exception()) is not None:
            message_id = delivery.message.message_id
            log.error("delivery_not_admitted", action=offer.name, message_id=message_id, exc_info=error)
            offer.requeue(delivery)

    async def _admit(self, offer: Offer, delivery: Delivery, *, is_suspect: bool) -> Permit | None:
        known = self._runner.look(offer, delivery, is_suspect=is_suspect)
        if known is None:
            return None
        key = ""
        if (concurrency := offer.policy.concurrency) is not None:
            arguments = self._runner.arguments(offer, known, delivery)
            if arguments is None:
                return None
            key = _key_of(offer, concurrency, arguments)
        try:
            async with asyncio.timeout(HOLD_S):
                permit = await self._wait(offer, key, partial(self._is_wanted, offer, known, delivery))
        except TimeoutError:
            permit = None
        if permit is not None:
            return permit
        if delivery.is_settled:
            offer.hand_back(delivery)  # or not even that: its link is gone
        elif self._runner.look(offer, delivery, is_suspect=is_suspect) is not None:
            self._send_back(offer, delivery, key)
        return None

    def _is_wanted(self, offer: Offer, known: Task, delivery: Delivery) -> bool:
        return not delivery.is_settled and self._runner.is_wanted(offer, known)

    async def _wait(self, offer: Offer, key: str, is_wanted: Callable[[], bool]) -> Permit | None:
        """First the place, since a start that is not used is lost."""
        permit = Permit()
        if (concurrency := offer.policy.concurrency) is not None:
            slots = self._slots[concurrency.scope]
            slot = await slots.take(key, concurrency.limit)
            if slot is None:
                return None
            permit = Permit(slots, slot)
        if (rate := offer.policy.rate) is not None:
            is_ours = False
            try:
                is_ours = await self._turns_of(offer, rate).take(is_wanted)
            finally:
                if not is_ours:
                    permit.release()
            return permit if is_ours else None
        return permit

    def _turns_of(self, offer: Offer, rate: Rate) -> Turns:
        if offer.name not in self._turns:
            self._turns[offer.name] = Turns(f"rate:{offer.name}", rate, self._patients[rate.scope])
        return self._turns[offer.name]

    def _send_back(self, offer: Offer, delivery: Delivery, key: str) -> None:
        if (concurrency := offer.policy.concurrency) is not None:
            before_it = 1 + self._slots[concurrency.scope].waiting_for(key)
            wait_s = limits.place_free_in_s(offer.estimate.moving_mean_s, before_it)
        else:
            assert offer.policy.rate is not None
            wait_s = limits.come_back_s(offer.policy.rate.per_ms)
        offer.wait(delivery, pick_rung(wait_s * (0.5 + random()), RUNGS_S, random()))

    # --- Ending -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Hand back what waits."""
        for entering in list(self._entering):
            entering.cancel()
        for turns in self._turns.values():
            turns.stop()

    async def aclose(self) -> None:
        for slots in self._slots.values():
            await slots.aclose()


def _passed(then: Callable[[Permit], None], entering: asyncio.Task[Permit | None]) -> None:
    permit = _permit(entering)
    if permit is not None:
        then(permit)


def _permit(entering: asyncio.Task[Permit | None]) -> Permit | None:
    return None if entering.cancelled() or entering.exception() is not None else entering.result()


def _key_of(offer: Offer, concurrency: Concurrency, arguments: object) -> str:
    app = offer.name.partition(".")[0]
    values = {name: getattr(arguments, name) for name in limits.fields_of(concurrency.text)}
    return f"slot:{app}:{limits.key_of(concurrency.text, values)}"
