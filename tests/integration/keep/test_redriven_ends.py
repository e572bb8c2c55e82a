"""A redriven task ends also where the recorder ends it, not a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.store.words import RESIZE, accept, applied, end, redrive, row
from tests.integration.keep.keeping import eventually

from canoa.broker import topology
from canoa.broker.memory import MemoryBroker
from canoa.execution.outcome import Outcome
from canoa.execution.policy import Policy
from canoa.recorder.service import recording
from canoa.store.port import State
from canoa.store.sqlite import SqliteStore
from canoa.vocabulary import TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from canoa.recorder.service import Recorder

A = TaskId("a")


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[Recorder]:
    """After a restart: its store has a task that died once, was redriven, and has not ended."""
    store, broker = SqliteStore(tmp_path / "canoa.db"), MemoryBroker()
    await store.open()
    await broker.open()
    await applied(store, accept("a"), end("a", Outcome.FAILED), redrive("a"))
    async with recording(broker, store, is_memory=True) as recorder:
        yield recorder
    await broker.aclose()
    await store.aclose()


async def test_a_redriven_task_that_nobody_offers_any_more_ends_as_refused(recorder: Recorder) -> None:
    await recorder.acceptor.publish_unfinished({}, {})

    await _ends(recorder, Outcome.REFUSED)


async def test_a_redriven_task_that_ended_its_process_too_often_ends_as_poisoned(recorder: Recorder) -> None:
    await recorder.broker.declare(*topology.of_action(RESIZE))

    await recorder.acceptor.publish_unfinished({A: 3}, {RESIZE: Policy(max_crashes=3)})

    await _ends(recorder, Outcome.POISONED)


async def _ends(recorder: Recorder, outcome: Outcome) -> None:
    async def has_ended() -> bool:
        return (await row(recorder.store, "a")).state is State.ENDED

    await eventually(has_ended)
    ended = await row(recorder.store, "a")
    assert (ended.outcome, ended.run) == (outcome, 1)
    letter = await recorder.store.letter(A)
    assert letter is not None
    assert (letter.reason, letter.redriven_ms) == (outcome, None)
