"""When a node registers: NOT_REGISTERED, REGISTERING, REGISTERED. Pure: events and times in, at most one intent out.

A node registers when what managers know of it may be old: it has just connected, its link was cut, its actions changed;
when a manager asks for it, or comes back. Floods end here in three ways: a heartbeat counts once however often it
comes, forced registrations are at least a second apart, others ten. Times are seconds of a clock that never goes back.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, assert_never

import msgspec

COALESCE_S: Final = 1.0
"""Whoever asks for registrations more often gets them together."""

BACK_OFF_S: Final = 10.0
"""Between unforced attempts, as published: a manager that does not answer has enough to do."""

SILENCE_S: Final = 15.0
"""Three heartbeats that did not come."""


class State(enum.StrEnum):
    NOT_REGISTERED = "NOT_REGISTERED"
    REGISTERING = "REGISTERING"  # said, and not acknowledged yet
    REGISTERED = "REGISTERED"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of managers, and they of it."""

    state: State = State.NOT_REGISTERED
    heartbeat_ts: int | None = None  # of the last one
    heard_s: float | None = None  # the last sign of life of any manager
    is_up: bool | None = None  # as the last health poll found it
    sent_s: float | None = None  # the last registration
    is_owed: bool = False  # a forced one, as soon as it may be


# --- Events -----------------------------------------------------------------------------------------------


class Renewed(msgspec.Struct, frozen=True):
    """What managers know of us may be old: connected, connected again, or other actions."""


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat."""

    ts: int
    is_forced: bool = False


class Acknowledged(msgspec.Struct, frozen=True):
    """A manager has our registration."""


class Polled(msgspec.Struct, frozen=True):
    """What the manager's own health page said."""

    is_up: bool


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed: to be told at `due_s`."""


Event: TypeAlias = Renewed | Heard | Acknowledged | Polled | Ticked


class Register(msgspec.Struct, frozen=True):
    """Publish a registration now."""

    is_forced: bool


# --- Rules ------------------------------------------------------------------------------------------------


def on(view: View, event: Event, now_s: float) -> tuple[View, Register | None]:
    """The view after an event, and what to do about it."""
    return _act(_told(_silenced(view, now_s), event, now_s), now_s)


def due_s(view: View) -> float | None:
    """When time alone changes something; None: it never will. Costs a node without managers nothing."""
    times: list[float] = []
    if view.is_owed:
        times.append(_may_send_s(view, COALESCE_S))
    if view.heard_s is not None:
        times.append(view.heard_s + SILENCE_S)
        if view.state is not State.REGISTERED:
            times.append(_may_send_s(view, BACK_OFF_S))
    return min(times, default=None)


def fell_silent(before: State, now: State, event: Event) -> bool:
    """No manager is heard any more: it was not we who had something new to say."""
    return before is State.REGISTERED and now is State.NOT_REGISTERED and not isinstance(event, Renewed)


def _silenced(view: View, now_s: float) -> View:
    if view.heard_s is None or now_s < view.heard_s + SILENCE_S:  # as in `due_s`: a difference may round otherwise
        return view
    return msgspec.structs.replace(view, state=State.NOT_REGISTERED, heard_s=None)


def _told(view: View, event: Event, now_s: float) -> View:
    match event:
        case Renewed():
            return _changed(view, state=State.NOT_REGISTERED, is_owed=True)
        case Heard(ts=ts) if ts == view.heartbeat_ts:
            return view  # by another way, or repeated
        case Heard(ts=ts, is_forced=is_forced):
            is_back = view.heard_s is None and view.state is not State.REGISTERED
            owed = view.is_owed or is_forced or is_back
            return _changed(view, heartbeat_ts=ts, heard_s=now_s, is_owed=owed)
        case Acknowledged():
            return _changed(view, state=State.REGISTERED, heard_s=now_s)
        case Polled(is_up=True):
            return _changed(view, is_up=True, heard_s=now_s, is_owed=view.is_owed or view.is_up is False)
        case Polled():
            # Once per fall: a wrong address must not undo, every few seconds, what heartbeats prove.
            fell = {"state": State.NOT_REGISTERED, "heard_s": None} if view.is_up else {}
            return _changed(view, is_up=False, **fell)
        case Ticked():
            return view
        case _:
            assert_never(event)


def _act(view: View, now_s: float) -> tuple[View, Register | None]:
    if view.is_owed:
        is_due, is_forced = now_s >= _may_send_s(view, COALESCE_S), True
    else:
        is_waiting = view.heard_s is not None and view.state is not State.REGISTERED
        is_due, is_forced = is_waiting and now_s >= _may_send_s(view, BACK_OFF_S), False
    if not is_due:
        return view, None
    state = State.REGISTERED if view.state is State.REGISTERED else State.REGISTERING
    return _changed(view, state=state, sent_s=now_s, is_owed=False), Register(is_forced)


def _may_send_s(view: View, apart_s: float) -> float:
    return float("-inf") if view.sent_s is None else view.sent_s + apart_s


def _changed(view: View, **changes: object) -> View:
    return msgspec.structs.replace(view, **changes)
