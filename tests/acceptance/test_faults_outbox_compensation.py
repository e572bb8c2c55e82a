"""A node that is cut off while its step is undone: the undoing goes on there, is told later, and is done once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import WITHIN_S, until_true
from tests.acceptance.test_faults_manager_compensation import Shop

from canoa import ActionFailed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.testing.pytest_plugin import ProxyFactory

pytestmark = pytest.mark.rabbitmq

BOX = ".canoa/outbox-gw-1.db"


async def until_kept(shop: Shop) -> None:
    """As `canoa outbox` shows it, while the worker runs."""

    async def is_kept() -> bool:
        [box] = json.loads(await shop.canoa("outbox", BOX, "--json"))
        return [each["action"] for each in box["actions"]] == ["plant.release"]

    await until_true(is_kept)


@pytest.mark.parametrize("fate", ["cut off", "cut off and killed"])
async def test_what_a_node_undid_while_it_was_cut_off_is_told_later_and_not_done_again(
    tmp_path: Path, rabbit: Rabbit, tcp_proxy: ProxyFactory, fate: str
) -> None:
    proxy = await tcp_proxy(rabbit.url)
    async with Shop(tmp_path, rabbit) as shop:
        await shop.manager()
        worker = await shop.node("gw-1", CANOA_BROKER=proxy.via(rabbit.url))
        shop.put("no-truck")
        order = await shop.order()
        await shop.sees("releasing")

        proxy.cut()
        shop.put("go-on")
        await until_kept(shop)
        story = json.loads(await shop.canoa("task", "show", order.id, "--json"))
        if fate == "cut off and killed":
            worker.kill()
        proxy.restore()
        if fate == "cut off and killed":
            await shop.node("gw-1", CANOA_BROKER=proxy.via(rabbit.url))

        with pytest.raises(ActionFailed, match="step ship: RuntimeError: no truck"):
            await order.result(WITHIN_S)
        undoing = {step["name"]: step["state"] for step in story["steps"] if step["compensates"]}
        assert undoing["reserve.compensation"] in ("sent", "waiting")  # as long as nobody was told
        assert undoing["charge.compensation"] == "blocked"
        assert shop.journal() == ["charged 995", "reserved", "released 7", "refunded 995 by receipt of 995"]
        assert [(step.name, step.outcome) for step in await shop.steps(order)][3:] == [
            ("reserve.compensation", "ok"),
            ("charge.compensation", "ok"),
        ]
        await shop.every_task_has_one_end({order.id})
        await asyncio.to_thread(_is_empty, shop)


def _is_empty(shop: Shop) -> None:
    run = shop.shell.canoa("outbox")
    assert f"nothing waits in {BOX}" in run.stderr
