"""Takes registrations: checks them, writes what changed, and acknowledges. A flood costs one write per node and change.

Forced or not makes no difference here: what is unchanged (by its fingerprint, for some minutes) is a sign of life and
is not written, and every node is acknowledged, at most once a second and once after its last registration.
A registration is settled when what it says is written; killed before, the broker has it still.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.broker.direct import DirectDelivery
from canoa.errors import BrokerUnreachable, CanoaError, EndpointRefused, StoreFull, StoreUnreachable
from canoa.execution.proof import AWAY, Proof
from canoa.logs import get_logger
from canoa.manager.acknowledging import Acknowledger
from canoa.manager.claims import Reason, Refused, read_claim
from canoa.manager.owning import Ages, is_doubtful, may_have, may_leave
from canoa.manager.pacing import Pacer
from canoa.manager.pools import DEFAULT_LIMITS
from canoa.manager.reading import as_said
from canoa.manager.sides import closes, is_one_process, without
from canoa.manager.waiting import waiting_for
from canoa.settings import without_password
from canoa.vocabulary import HTTP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from canoa.broker.port import Broker, Delivery
    from canoa.manager.catalogue import Catalogue
    from canoa.manager.following import Follower
    from canoa.manager.waiting import Waiting
    from canoa.store.routed_port import NodeRow
    from canoa.transports.calling import Caller
    from canoa.transports.reaching import Reaching
    from canoa.vocabulary import NodeId

log = get_logger(__name__)

PREFETCH: Final = 1000
REPEAT_AFTER_S: Final = 1.0
"""When the store could not write."""
LOOK_WITHIN_S: Final = 3.0
MAX_LOOKS: Final = 100
"""For nodes that others claim to be, side by side. Whoever makes more of them waits longer, and nobody else does."""
SAY_EVERY_S: Final = 10.0
"""How often one kind of refusal is logged; all are counted."""
MAKE_ROOM: Final = 100
"""The share, one in so many, of nodes that make room together: one by one, each new node would cost a transaction."""


class Registrations:
    """`caller` knows which endpoints are called. `on_return` hears of nodes that come back, or start again: what failed
    before says nothing about them."""

    def __init__(
        self,
        broker: Broker,
        catalogue: Catalogue,
        follower: Follower,
        *,
        reaching: Reaching,
        caller: Caller,
        on_return: Callable[[NodeId], None],
    ) -> None:
        self._reaching = reaching
        self._caller = caller
        self._catalogue = catalogue
        self._follower = follower
        self._on_return = on_return
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[NodeId, Waiting] = {}  # the last one of each node
        self._writing: asyncio.Task[None] | None = None
        self._rivals: set[NodeId] = set()  # of the group that is being written
        self.acks = Acknowledger(broker, catalogue)
        self._said = Pacer[Reason](SAY_EVERY_S)
        self.refused: Counter[Reason] = Counter()
        self.taken = 0

    def on_delivery(self, delivery: Delivery) -> None:
        claim = read_claim(as_said(delivery.message))
        if isinstance(claim, Refused):
            self._refuse(claim)
            delivery.settle()
            return
        waiting = waiting_for(claim.row, delivery)
        if claim.row.actions and not self._can_call(self._joined(waiting).claim, delivery):
            return
        self.taken += 1
        if claim.strange:
            why = f"{claim.strange} of its actions have names that cannot be; the others are accepted"
            self._refuse(Refused(Reason.ACTIONS, why, claim.row.node_id))
        self._take(waiting)

    def _can_call(self, claim: NodeRow, delivery: Delivery) -> bool:
        """Or reach it otherwise. Whoever offers nothing but an endpoint that is not called is refused."""
        refusal = self._caller.refusal(claim)
        if refusal is not None:
            self._caller.note(claim, refusal)
        if self._caller.keeps_away(claim) is None:
            return True
        self.refused[Reason.ENDPOINT] += 1
        if refusal is not None and isinstance(delivery, DirectDelivery):  # whoever brought it waits for an answer
            delivery.error = EndpointRefused(without_password(claim.endpoint), refusal.why)
        delivery.settle()
        return False

    async def stop(self) -> None:
        """What is not written stays with the broker."""
        self.acks.stop()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    def _take(self, waiting: Waiting) -> None:
        node_id = waiting.claim.node_id
        before = self._waiting.get(node_id)
        alone = self._joined(waiting)
        if (before is None or before.claim.instance != alone.claim.instance) and self._is_known(alone.claim):
            self._accept(alone)  # whoever else claims its id meanwhile takes no sign of life from it
            return
        self._waiting[node_id] = alone if before is None else waiting.after(before)
        if self._writing is None:
            self._writing = self._loop.create_task(self._write(), name="manager.registrations")

    def _joined(self, waiting: Waiting) -> Waiting:
        return waiting.joined(self._catalogue.rows.get(waiting.claim.node_id))

    def _is_known(self, claim: NodeRow) -> bool:
        known = self._catalogue.rows.get(claim.node_id)
        if known is None or known.fingerprint != claim.fingerprint or _quarter(known.load) != _quarter(claim.load):
            return False
        # One that was away is written, and so told: whoever leads looks whether it is back.
        settings = self._catalogue.settings
        believed_s = settings.ack_every_s if known.proof in AWAY else settings.fingerprint_ttl_s
        return self._catalogue.learnt_s_ago(claim.node_id) < believed_s

    # --- Writing what changed -----------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            await asyncio.sleep(0)  # whatever else came in this turn of the loop comes along
            while self._waiting:
                group, self._waiting = self._waiting, {}
                await self._try_to_write(group)
        finally:
            self._writing = None  # however it ended: the next registration starts it again

    async def _try_to_write(self, group: dict[NodeId, Waiting]) -> None:
        try:
            await self._write_group(group)
        except (StoreUnreachable, StoreFull, BrokerUnreachable) as exc:
            log.warning("registrations_wait", nodes=len(group), reason=str(exc))
            self._give_back(group)
            await asyncio.sleep(REPEAT_AFTER_S)
        except Exception as exc:  # of one of them, or a bug of ours: neither may hold up the others
            log.warning("registrations_written_one_by_one", nodes=len(group), reason=str(exc))
            await self._write_one_by_one(group)

    async def _write_one_by_one(self, group: dict[NodeId, Waiting]) -> None:
        for node_id, waiting in group.items():
            try:
                await self._write_group({node_id: waiting})
            except Exception as exc:
                log.error("registration_not_written", node_id=node_id, exc_info=exc)
                self._refuse(Refused(Reason.MALFORMED, f"it cannot be written: {exc!r:.200}", node_id))
                waiting.settle()

    async def _write_group(self, group: dict[NodeId, Waiting]) -> None:
        rows: list[NodeRow] = []
        await self._put_off_unknowable(group)
        room = await self._room_for(group)
        for node_id, came in list(group.items()):
            group[node_id] = waiting = self._joined(came)
            if self._is_known(waiting.claim):
                continue  # the group before had the same
            row = self._row(waiting, has_room=room > 0)
            if row is not None and node_id not in self._catalogue.rows:
                room -= 1
            if row is not None:
                rows.append(row)
            else:
                del group[node_id]
                waiting.settle()
        if rows:
            back = [row.node_id for row in rows if self._is_back(row)]
            await self._follower.put(rows)
            for node_id in back:
                self._on_return(node_id)
        for waiting in group.values():
            self._accept(waiting)

    def _give_back(self, group: dict[NodeId, Waiting]) -> None:
        for node_id, waiting in group.items():
            later = self._waiting.get(node_id)
            self._waiting[node_id] = waiting if later is None else later.after(waiting)

    def _is_back(self, row: NodeRow) -> bool:
        known = self._catalogue.rows.get(row.node_id)
        return known is not None and bool(row.actions) and (not known.actions or known.instance != row.instance)

    # --- What to write -------------------------------------------------------------------------------------

    def _row(self, waiting: Waiting, *, has_room: bool) -> NodeRow | None:
        """None: it is refused, or changes nothing."""
        claim = waiting.claim
        known = self._catalogue.rows.get(claim.node_id)
        if not claim.actions:
            return self._left(known, claim)
        if known is None and not has_room:
            self._refuse(Refused(Reason.TOO_MANY, "see the setting max_nodes", claim.node_id))
            return None
        if claim.node_id in self._rivals:
            self._refuse(
                Refused(Reason.RIVAL, "another node lives under this id; give it one of its own", claim.node_id)
            )
            for way, delivery in waiting.deliveries.items():
                self.acks.deny(claim, way, reply_to=delivery.message.reply_to)
            return None
        now_ms = self._catalogue.now_ms()
        # Of another instance it is another one's: whoever has it may give the node work.
        is_same = known is not None and known.instance == claim.instance
        token = known.token if known and known.token and is_same else secrets.token_hex(16)
        is_new = known is None or known.fingerprint != claim.fingerprint
        registered_ms = now_ms if known is None or is_new else known.registered_ms
        proof = known.proof if known is not None and _is_the_same(known, claim) else Proof.UNPROVEN
        return msgspec.structs.replace(
            claim,
            token=token,
            registered_ms=registered_ms,
            seen_ms=now_ms,
            proof=proof,
            version=0 if known is None else known.version,
        )

    def _left(self, known: NodeRow | None, claim: NodeRow) -> NodeRow | None:
        if known is None or not known.actions:
            return None
        if ways := closes(known, claim):
            return self._without(known, ways)
        if not may_leave(known, claim):
            return None
        log.info("node_left", node_id=known.node_id)
        return left(known, self._catalogue.now_ms())

    def _without(self, known: NodeRow, ways: tuple[str, ...]) -> NodeRow | None:
        """It may still be reached by others; by none, it is gone until it says otherwise."""
        row = without(known, ways)
        if row.closed == known.closed:
            return None
        log.info("node_way_closed", node_id=known.node_id, ways=ways, left=row.open_ways)
        return gone(row, self._catalogue.now_ms()) if len(row.closed) == len(row.all_ways) else row

    async def _room_for(self, group: dict[NodeId, Waiting]) -> int:
        """How many new nodes there is room for, made by those that left first if need be."""
        rows, limit = self._catalogue.rows, self._catalogue.settings.max_nodes
        new = sum(bool(each.claim.actions) for node_id, each in group.items() if node_id not in rows)
        missing = len(rows) + new - limit
        if missing > 0 and self._catalogue.left:
            first = islice(self._catalogue.left, max(missing, limit // MAKE_ROOM))
            await self._follower.drop([rows[node_id] for node_id in first if node_id not in group])
        return limit - len(rows)

    async def _put_off_unknowable(self, group: dict[NodeId, Waiting]) -> None:
        """Whoever seems to have another's id is looked for, all of them side by side: an address may be slow to answer.
        Where that cannot be done now, their claims alone come again later."""
        self._rivals.clear()
        doubtful = [waiting.claim for waiting in group.values() if self._is_doubtful(waiting)]
        looked_for, others = doubtful[:MAX_LOOKS], doubtful[MAX_LOOKS:]
        found = await asyncio.gather(*map(self._look, looked_for))
        unknowable = [claim for claim, look in zip(looked_for, found, strict=True) if isinstance(look, Exception)]
        for claim in (*unknowable, *others):
            self._loop.call_later(REPEAT_AFTER_S, self._take_again, group.pop(claim.node_id))
        for claim, look in zip(looked_for, found, strict=True):
            known = self._catalogue.rows.get(claim.node_id)
            if known is not None and not isinstance(look, Exception) and not may_have(known, claim, look):
                self._rivals.add(claim.node_id)

    def _take_again(self, waiting: Waiting) -> None:
        """Unless the node has said more since."""
        later = self._waiting.pop(waiting.claim.node_id, None)
        self._take(waiting if later is None else later.after(waiting))

    async def _look(self, claim: NodeRow) -> Mapping[str, int | None] | CanoaError | TimeoutError:
        try:
            async with asyncio.timeout(LOOK_WITHIN_S):
                return await self._reaching.seen(claim.node_id)
        except (CanoaError, TimeoutError) as exc:
            log.warning("registration_waits", node_id=claim.node_id, reason=str(exc) or "nobody could be asked in time")
            return exc

    def _is_doubtful(self, waiting: Waiting) -> bool:
        claim = waiting.claim
        known = self._catalogue.rows.get(claim.node_id)
        signs, now_s = self._catalogue.signs, self._catalogue.clock.monotonic_s()
        ages = Ages(signs.age_s(claim.node_id, now_s), signs.registered_s_ago(claim.node_id, now_s))
        silence_s = self._catalogue.settings.silence_s
        if known is None or not claim.actions or self._is_known(claim):
            return False
        if is_one_process(known, claim, by=waiting.by):
            return False
        return is_doubtful(known, claim, ages=ages, silence_s=silence_s)

    # --- Answering ------------------------------------------------------------------------------------------

    def _accept(self, waiting: Waiting) -> None:
        """By every way that it came by. Who posted it has the answer already. A farewell is no sign that the node
        lives, and its last will least of all."""
        waiting.settle()
        if not waiting.claim.actions:
            return
        self._catalogue.heard(waiting.claim.node_id, is_registration=True)
        for way, delivery in waiting.deliveries.items():
            if way != HTTP:
                self.acks.acknowledge(waiting.claim, way, reply_to=delivery.message.reply_to)

    def _refuse(self, refused: Refused) -> None:
        self.refused[refused.reason] += 1
        if self._said.want(refused.reason, self._loop.time()):
            log.warning(
                "registration_refused",
                reason=refused.reason.value,
                why=refused.why,
                node_id=refused.node_id,
                so_far=self.refused[refused.reason],
            )


def left(row: NodeRow, now_ms: int) -> NodeRow:
    """It offers nothing any more. The limits of what it did stay: that is how its actions are still known."""
    limits = {action: row.limits.get(action, DEFAULT_LIMITS) for action in row.actions}
    nothing = {"actions": (), "limits": limits, "fingerprint": "", "proof": Proof.UNPROVEN}
    return msgspec.structs.replace(row, **nothing, registered_ms=now_ms)


def gone(row: NodeRow, now_ms: int) -> NodeRow:
    """Nothing can be brought to it: it is back with its next registration, or with the next canary that it answers."""
    return msgspec.structs.replace(row, proof=Proof.CUT_OFF) if row.takes_canaries else left(row, now_ms)


def _is_the_same(known: NodeRow, claim: NodeRow) -> bool:
    """What was proven of it still holds: signs of life are not what was missed."""
    return bool(known.actions) and known.instance == claim.instance and claim.takes_canaries


def _quarter(load: float | None) -> int | None:
    """A load that moves a little is not worth a write."""
    return None if load is None else int(load * 4)
