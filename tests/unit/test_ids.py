"""Ids are unique, sort by time, and are valid UUIDs and trace ids at once."""

from __future__ import annotations

import time
import uuid
from multiprocessing import get_context

from canoa.wire.ids import new_client_id, new_task_id


def test_a_task_id_is_a_version_7_uuid_of_now() -> None:
    before_ms = time.time_ns() // 1_000_000

    task_id = new_task_id()

    known = uuid.UUID(task_id)
    assert known.hex == task_id
    assert known.version == 7
    assert known.variant == uuid.RFC_4122
    assert before_ms <= known.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_of_later_milliseconds_sort_later() -> None:
    first = new_task_id()
    while time.time_ns() // 1_000_000 == uuid.UUID(first).int >> 80:
        pass

    assert new_task_id() > first


def test_ids_do_not_repeat() -> None:
    assert len({new_task_id() for _ in range(10_000)}) == 10_000
    assert len({new_client_id() for _ in range(1_000)}) == 1_000


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    with get_context("forkserver").Pool(2) as pool:
        ids = pool.starmap(new_task_id, [()] * 200)

    assert len(set(ids)) == 200


def test_all_random_bits_are_used() -> None:
    seen = 0
    for _ in range(500):
        seen |= uuid.UUID(new_task_id()).int

    assert seen & ((1 << 62) - 1) == (1 << 62) - 1
    assert seen >> 64 & 0xFFF == 0xFFF
