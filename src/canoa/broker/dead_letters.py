"""What a dead letter says about its deaths, in the headers RabbitMQ writes: `x-death` and `x-first-death-*`.

Pure functions over messages. Which queue gives up a message, and when, is in `memory_queue.py`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from canoa.broker.port import HeaderValue, Message


class DeathReason(enum.StrEnum):
    REJECTED = "rejected"
    EXPIRED = "expired"
    MAXLEN = "maxlen"


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """One message leaving one queue against its will. `exchange` and `key` are those it had come with."""

    queue: str
    reason: DeathReason
    exchange: str
    key: str
    time_s: int


def buried(message: Message, death: Death) -> Message:
    """The message as it is published again: with this death in front, and no time limit left to kill it twice."""
    earlier = _deaths(message)
    same = next((d for d in earlier if d["queue"] == death.queue and d["reason"] == death.reason), None)
    if same is None:
        latest = _entry(message, death)
    else:
        earlier.remove(same)
        latest = {**same, "count": _count(same) + 1}
    first: dict[str, HeaderValue] = {
        "x-first-death-exchange": death.exchange,
        "x-first-death-queue": death.queue,
        "x-first-death-reason": str(death.reason),
    }
    # Those already there win: the first death stays the first.
    headers = {**first, **message.headers, "x-death": [latest, *earlier]}
    return msgspec.structs.replace(message, headers=headers, expiration_s=None)


def is_endless(message: Message, queue: str) -> bool:
    """Would the dead letter enter `queue` again on a circle in which nobody ever rejected it, only limits did?"""
    for death in _deaths(message):
        if death["reason"] == DeathReason.REJECTED:
            return False
        if death["queue"] == queue:
            return True
    return False


def _entry(message: Message, death: Death) -> dict[str, HeaderValue]:
    entry: dict[str, HeaderValue] = {
        "count": 1,
        "reason": str(death.reason),
        "queue": death.queue,
        "time": death.time_s,
        "exchange": death.exchange,
        "routing-keys": [death.key],
    }
    if message.expiration_s is not None:
        entry["original-expiration"] = str(round(message.expiration_s * 1000))
    return entry


def _deaths(message: Message) -> list[dict[str, HeaderValue]]:
    """Those recorded so far, latest first. Whatever else a sender put under the header's name is passed over."""
    found = message.headers.get("x-death")
    if not isinstance(found, list):
        return []
    return [death for death in found if isinstance(death, dict) and death.keys() >= {"queue", "reason"}]


def _count(death: dict[str, HeaderValue]) -> int:
    count = death.get("count")
    return count if isinstance(count, int) else 1
