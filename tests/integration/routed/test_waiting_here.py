"""What an uplink brought waits in the node, whatever becomes of its broker, and is given back when the node leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.pool.pool import until
from tests.integration.routed.bare_manager import NODE, asking
from tests.integration.routed.test_asked_again import counter
from tests.integration.routed.test_copies import Blocker, uplinks

from canoa.clock import now_ms
from canoa.wire import task
from canoa.worker import worker as worker_module
from canoa.worker.settings import WorkerSettings

if TYPE_CHECKING:
    import pytest
    from tests.integration.routed.paper_uplink import PaperUplink
    from tests.integration.routed.test_node_outbox import Counter

    from canoa import Canoa
    from canoa.broker.port import Message
    from canoa.worker.worker import Worker

__all__ = ["counter", "uplinks"]

SETTINGS = WorkerSettings(node_id=NODE, concurrency=2)


def due_in(wait_s: float) -> Message:
    return asking("shop.count", headers={task.DUE: now_ms() + round(wait_s * 1000)})


def take_the_broker_away(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like one without a link: it lets whoever sends something wait for that."""
    monkeypatch.setattr(worker._broker, "post", lambda *_, **__: None)


async def test_what_is_not_due_starts_in_time_while_the_broker_is_away(
    memory_app: Canoa, counter: Counter, uplinks: tuple[PaperUplink, PaperUplink], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_app.worker_with(SETTINGS) as worker:
        take_the_broker_away(worker, monkeypatch)
        request = due_in(0.3)
        came = uplinks[0].bring(request)
        await until(lambda: came.is_settled)
        assert counter.runs == 0

        answered = await uplinks[0].answer()

    assert (answered.request_id, answered.status, counter.runs) == (request.message_id, "ok", 1)


async def test_what_cannot_start_for_long_stays_where_it_is_while_the_broker_is_away(
    memory_app: Canoa, counter: Counter, uplinks: tuple[PaperUplink, PaperUplink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "TUNE_EVERY_S", 0.01)
    monkeypatch.setattr(worker_module, "LET_GO_EVERY_S", 0.0)
    monkeypatch.setattr(worker_module, "HOLD_S", 0.0)
    blocker = Blocker(memory_app)
    async with memory_app.worker_with(SETTINGS) as worker:
        take_the_broker_away(worker, monkeypatch)
        await blocker.fill(uplinks[0])
        uplinks[0].bring(asking("shop.count"), asking("shop.count"))
        looked_at = worker._look_again_s
        await until(lambda: worker._look_again_s > looked_at)
        blocker.end()

        ended = [await uplinks[0].answer() for _ in range(4)]

    assert [each.status for each in ended] == ["ok"] * 4
    assert counter.runs == 2


async def test_what_waits_for_its_time_is_given_back_by_a_node_that_leaves(
    memory_app: Canoa, counter: Counter, uplinks: tuple[PaperUplink, PaperUplink]
) -> None:
    request = due_in(3600)
    async with memory_app.worker_with(SETTINGS):
        came = uplinks[0].bring(request)
        await until(lambda: came.is_settled)

    answered = await uplinks[0].answer()
    assert (answered.request_id, answered.status, counter.runs) == (request.message_id, "returned", 0)
