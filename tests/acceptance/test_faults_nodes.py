"""A node as a process that is killed: what its manager sent is not lost with it, and a deadly message is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, DEPOT, Shell, until
from tests.integration.routed.bare_manager import asking, managing

from canoa import Canoa

if TYPE_CHECKING:
    from pathlib import Path

NODE = ("--node-id", "gw-7")
WORKER = (str(CANOA), "worker", DEPOT, *NODE)


async def test_a_killed_node_runs_what_it_had_when_it_is_back(online: Shell, rabbit_url: str, tmp_path: Path) -> None:
    async with managing(Canoa("beside", broker=rabbit_url)) as manager:
        first = online.start_worker(*NODE)
        request_id = await manager.send("depot.hold", {"folder": str(tmp_path)})
        until((tmp_path / "started").exists)
        first.kill()
        (tmp_path / "release").touch()

        online.start_worker(*NODE)
        answered = await manager.answer()

    assert (answered.request_id, answered.status, answered.value) == (request_id, "ok", "held")


async def test_a_message_that_kills_its_node_is_poison_after_three_deaths(online: Shell, rabbit_url: str) -> None:
    async with managing(Canoa("beside", broker=rabbit_url)) as manager:
        node = online.start_worker(*NODE)
        await manager.send("depot.die")
        for _ in range(2):
            node.wait()
            node = online.start(*WORKER)
        node.wait()
        survivor = online.start_worker(*NODE)
        answered = await manager.answer()

    assert (answered.status, answered.value) == ("poisoned", {"error": "it ended its worker's process 3 times"})
    assert survivor.is_alive


async def test_a_node_that_is_killed_with_a_bundle_in_hand_loses_none_of_it(
    online: Shell, rabbit_url: str, tmp_path: Path
) -> None:
    async with managing(Canoa("beside", broker=rabbit_url)) as manager:
        first = online.start_worker(*NODE)
        held = asking("depot.hold", {"folder": str(tmp_path)})
        request_ids = await manager.send_together(held, *(asking("depot.echo", {"text": "x"}) for _ in range(100)))
        until((tmp_path / "started").exists)
        early = await manager.answers_together(100)  # those that did not wait have been answered already
        first.kill()
        (tmp_path / "release").touch()

        online.start_worker(*NODE)
        answers = await manager.answers_together(101)  # the broker does not know which of them were

    assert {each.request_id for each in early} == set(request_ids[1:])
    assert sorted(each.request_id for each in answers) == sorted(request_ids)
    assert {each.status for each in answers} == {"ok"}


async def test_of_a_bundle_with_a_deadly_message_that_one_is_poison_and_the_others_succeed(
    online: Shell, rabbit_url: str
) -> None:
    async with managing(Canoa("beside", broker=rabbit_url)) as manager:
        node = online.start_worker(*NODE)
        deadly, *harmless = [asking("depot.die"), *(asking("depot.echo", {"text": "x"}) for _ in range(6))]
        await manager.send_together(*harmless[:3], deadly, *harmless[3:])
        for _ in range(2):
            node.wait()
            node = online.start(*WORKER)
        node.wait()
        survivor = online.start_worker(*NODE)
        answers = await manager.answers_together(7)
        while len({each.request_id for each in answers}) < 7:  # some were answered before a death, and again after it
            answers += await manager.answers_together(1)

    statuses = {each.request_id: each.status for each in answers}
    assert statuses.pop(deadly.message_id or "") == "poisoned"
    assert statuses == dict.fromkeys([each.message_id for each in harmless], "ok")
    assert survivor.is_alive
