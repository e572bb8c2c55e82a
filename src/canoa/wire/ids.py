"""Ids that sort by time and never meet: UUIDv7, written as 32 hexadecimal digits.

Thirty-two digits are also what W3C calls a trace id, so a task submitted outside any trace starts one under its own id.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

from canoa.vocabulary import TaskId

MAX_ID_CHARS: Final = 128
"""Of ids that others choose, for whoever keeps, shows or asks for a task."""

MAX_ID_BYTES: Final = 200
"""As UTF-8: with a step, an attempt and a send behind it, it still fits into the 255 bytes of an AMQP property."""


def new_task_id() -> TaskId:
    """48 bits of milliseconds, then 74 random ones. From the system's source, so that a forked child differs."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64
    return TaskId(f"{value | 1 << 63 | random & 0x3FFF_FFFF_FFFF_FFFF:032x}")


def task_id_of_key(action: str, key: str) -> TaskId:
    """The same for the same key of an action, whoever asks: UUIDv8, from a hash."""
    value = int.from_bytes(hashlib.sha256(f"{action}\n{key}".encode()).digest()[:16], "big")
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 1 << 63
    return TaskId(f"{value:032x}")


def made_at_s(task_id: TaskId) -> float | None:
    """When an id of ours was made, in epoch seconds; None for ids of others."""
    made_ms = task_id[:12]
    if len(task_id) != 32 or task_id[12] != "7" or not made_ms.isalnum():  # a sign is no digit, though `int` takes one
        return None
    try:
        return int(made_ms, 16) / 1000
    except ValueError:
        return None


def is_usable_id(text: str) -> bool:
    """Whether a task with this id can be kept, shown and asked for."""
    if not 0 < len(text) <= MAX_ID_CHARS or not text.isprintable():
        return False
    return text.isascii() or len(text.encode()) <= MAX_ID_BYTES


def made_up_id(origin: str, body: bytes) -> TaskId:
    """For a message from the queue `origin` that has no usable id: the same whenever it is read, and no other's."""
    digest = hashlib.sha256(f"{origin}\n".encode(errors="replace") + body).hexdigest()
    return TaskId(f"unknown-{digest[:24]}")


def new_client_id() -> str:
    return os.urandom(8).hex()
