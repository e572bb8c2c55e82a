"""Whether a node can receive work, proven by messages through its own queue. Pure: events and times in, a verdict out.

A canary is a small message to the node's own queue, which it answers at once. What became of it, and what its queue
looks like, tells *online*, *deaf*, *cut off* and *dead* apart. Times are seconds of a clock that never goes back.
Canaries are sent, and verdicts written, in `manager/canaries.py`.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, assert_never

import msgspec

EVERY_S: Final = 20.0
"""Between canaries to a node that nothing else proves. Shorter finds the deaf sooner, and costs a message each time."""

AGAIN_S: Final = 5.0
"""Between canaries to one that listens, and did not answer the last one."""

ANSWER_WITHIN_S: Final = 4.0
"""Of this, other managers may take two for telling that they were answered."""

MISSES: Final = 2
"""In a row, until a node that listens is deaf. One may go with a link."""


class Proof(enum.StrEnum):
    UNPROVEN = "unproven"  # it offers no canaries, or has not answered one yet: judged by its signs of life
    ONLINE = "online"
    DEAF = "deaf"  # somebody listens for it, or it shows signs of life, and what is sent to it is not answered
    CUT_OFF = "cut_off"  # nobody listens for it, and it left no word: it may come back
    DEAD = "dead"  # cut off for longer than its grace, or its queue does not exist


AWAY: Final = frozenset({Proof.CUT_OFF, Proof.DEAD})
OUT: Final = AWAY | {Proof.DEAF}
"""They get no new work until they answer a canary."""


class Place(enum.Enum):
    """What a look at a node's queue showed."""

    MISSING = enum.auto()  # there is none
    DESERTED = enum.auto()  # nobody listens
    HEARD = enum.auto()  # somebody listens
    HIDDEN = enum.auto()  # it is not named after the node, or not on this broker


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one node."""

    proof: Proof = Proof.UNPROVEN
    proven_s: float | None = None
    sent_s: float | None = None  # the last canary
    is_out: bool = False  # it may still be answered in time
    missed: int = 0  # in a row
    deserted_s: float | None = None  # since when nobody listens


# --- Events -----------------------------------------------------------------------------------------------


class Answered(msgspec.Struct, frozen=True):
    """A canary, or a step. A deaf node is sent no steps, so an answer to one was in its hands before it went deaf."""

    is_canary: bool = True


class Sent(msgspec.Struct, frozen=True):
    """A canary."""


class NotSent(msgspec.Struct, frozen=True):
    """The broker did not take it: that tells nothing about the node."""


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """A canary that the broker took, and that nobody answered in time."""

    place: Place
    is_full: bool = False  # it has work, and more waits: it takes nothing before something ends
    shows_life: bool = False  # by another way than its queue, since that canary


class Doubted(msgspec.Struct, frozen=True):
    """Another manager, or the prober, could not bring it a step."""

    proof: Proof


class Returned(msgspec.Struct, frozen=True):
    """One that was away has registered."""


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


Event: TypeAlias = Answered | Sent | NotSent | Missed | Doubted | Returned | Ticked


# --- Rules ------------------------------------------------------------------------------------------------


def on(view: View, event: Event, now_s: float, *, grace_s: float) -> View:
    """The view after an event. `grace_s`: how long a node may be cut off before it is dead."""
    match event:
        case Answered(is_canary=is_canary):
            if not is_canary and view.proof in OUT:
                return view
            return View(proof=Proof.ONLINE, proven_s=now_s, sent_s=view.sent_s)
        case Sent():
            return _changed(view, sent_s=now_s, is_out=True)
        case NotSent():
            return _changed(view, is_out=False)
        case Missed():
            return _missed(_changed(view, is_out=False), event, now_s, grace_s)
        case Doubted(proof=proof):
            return View(proof=proof, deserted_s=now_s if proof in AWAY else None)
        case Returned():
            return View(proof=view.proof, deserted_s=view.deserted_s) if view.proof in AWAY else view
        case Ticked():
            return _deserted(view, now_s, grace_s) if view.proof is Proof.CUT_OFF else view
        case _:
            assert_never(event)


def next_s(view: View) -> float | None:
    """When the next canary is to be sent; None: one is out."""
    if view.is_out:
        return None
    last_s = max((at_s for at_s in (view.proven_s, view.sent_s) if at_s is not None), default=float("-inf"))
    is_hurried = view.proof is Proof.DEAF or (view.missed > 0 and view.proof not in AWAY)
    return last_s + (AGAIN_S if is_hurried else EVERY_S)


def overdue_s(view: View) -> float | None:
    """When the canary that is out is missed; None: none is out."""
    return view.sent_s + ANSWER_WITHIN_S if view.is_out and view.sent_s is not None else None


def _missed(view: View, event: Missed, now_s: float, grace_s: float) -> View:
    if event.place is Place.MISSING:
        return _changed(view, proof=Proof.DEAD, missed=view.missed + 1)
    if event.place is not Place.HEARD and not event.shows_life:
        return _deserted(_changed(view, missed=view.missed + 1), now_s, grace_s)
    if event.is_full:
        return view
    missed = view.missed + 1
    proof = Proof.DEAF if missed >= MISSES else view.proof
    return _changed(view, proof=proof, missed=missed, deserted_s=None)


def _deserted(view: View, now_s: float, grace_s: float) -> View:
    """What was dead stays so until it answers."""
    since_s = now_s if view.deserted_s is None else view.deserted_s
    is_dead = view.proof is Proof.DEAD or now_s - since_s >= grace_s
    return _changed(view, proof=Proof.DEAD if is_dead else Proof.CUT_OFF, deserted_s=since_s)


def _changed(view: View, **changes: object) -> View:
    return msgspec.structs.replace(view, **changes)
