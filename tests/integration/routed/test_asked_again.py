"""Who sends a request once more, to a node with several ways, gets its answer once more, wherever that is by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.pool.pool import sample, until
from tests.integration.routed.bare_manager import NODE
from tests.integration.routed.test_copies import FIRST, counting, uplinks
from tests.integration.routed.test_node_outbox import Counter, until_kept

from canoa.worker import forwarding, recent
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.routed.paper_uplink import PaperUplink

    from canoa import Canoa

__all__ = ["uplinks"]


@pytest.fixture
def counter(memory_app: Canoa) -> Counter:
    counter = Counter(memory_app)
    counter.gate.open()
    return counter


async def test_an_answer_that_is_no_longer_there_is_given_back_and_nothing_runs(
    memory_app: Canoa,
    counter: Counter,
    uplinks: tuple[PaperUplink, PaperUplink],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "MAX_ANSWERS", 0)
    async with memory_app.worker_with(WorkerSettings(node_id=NODE)):
        uplinks[0].bring(counting())
        first = await uplinks[0].answer()

        asked_again = uplinks[1].bring(counting())
        again = await uplinks[0].answer()
        await until(lambda: asked_again.is_settled)

    assert [(each.request_id, each.status) for each in (first, again)] == [(FIRST, "ok"), (FIRST, "returned")]
    assert counter.runs == 1


async def test_an_answer_that_went_over_the_outbox_is_found_there_and_waits_there_again(
    memory_app: Canoa,
    counter: Counter,
    uplinks: tuple[PaperUplink, PaperUplink],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "REPEAT_AFTER_S", 0.02)
    monkeypatch.setattr(recent, "MAX_ANSWERS", 0)
    file = tmp_path / "outbox.db"

    def set_open(is_open: bool) -> None:
        for uplink in uplinks:
            uplink.is_open = is_open

    async with memory_app.worker_with(WorkerSettings(node_id=NODE, outbox=str(file))) as worker:

        async def until_sent() -> None:
            await until(lambda: sample(worker, "canoa_outbox_messages") == 0)

        set_open(False)
        uplinks[0].bring(counting())
        await until_kept(file, 1)
        set_open(True)
        answers = [await uplinks[0].answer()]
        await until_sent()

        uplinks[1].bring(counting())
        answers.append(await uplinks[0].answer())

        set_open(False)
        uplinks[1].bring(counting())
        await until_kept(file, 1)
        set_open(True)
        answers.append(await uplinks[0].answer())
        await until_sent()

    assert [(each.request_id, each.status, each.value) for each in answers] == [(FIRST, "ok", 1)] * 3
    assert counter.runs == 1
