"""A node as a process that is killed: what its manager sent is not lost with it, and a deadly message is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.shell import CANOA, DEPOT, Shell, until
from tests.integration.routed.bare_manager import managing

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
