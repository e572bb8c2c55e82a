"""Sagas over processes: what was done is undone, whoever is killed meanwhile, and what cannot be undone is told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.acceptance.plant import Plant, until_true

from canoa import ActionFailed, ActionTimedOut, TaskCancelled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

    from canoa.client.handle import Handle

WITHIN_S = 60.0


class Shop(Plant):
    """A plant whose nodes run the shop's actions, and orders for it."""

    actions = "tests.acceptance.saga_actions:app"

    def __init__(self, folder: Path, rabbit: Rabbit, store_url: str | None = None, *, ship_within_s: float = 1) -> None:
        super().__init__(folder, rabbit, store_url)
        self.folder = folder
        self.plan = self.app.plan("order")
        where = self.plan.input["folder"]
        paid = self.plan.step("plant.charge", folder=where, cents=995, compensate="plant.refund")
        kept = self.plan.step("plant.reserve", folder=where, after=paid, compensate="plant.release")
        limits: dict[str, Any] = {"timeout": ship_within_s, "retry": 0}
        self.plan.step("plant.ship", folder=where, after=kept, compensate="plant.fetch_back", **limits)

    async def order(self) -> Handle[Any]:
        return await self.plan.submit(folder=str(self.folder))

    def put(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    async def sees(self, name: str) -> None:
        async def is_there() -> bool:
            return (self.folder / name).exists()

        await until_true(is_there)

    def journal(self) -> list[str]:
        return (self.folder / "journal").read_text().splitlines()

    async def canoa(self, *args: str) -> str:
        run = await asyncio.to_thread(self.shell.canoa, *args)
        return run.stdout + run.stderr


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def test_a_manager_killed_while_a_task_is_undone_leaves_the_rest_to_the_next(
    tmp_path: Path, rabbit: Rabbit, kind: str, request: pytest.FixtureRequest
) -> None:
    store_url = request.getfixturevalue("postgres_url") if kind == "postgresql" else None
    async with Shop(tmp_path, rabbit, store_url) as shop:
        manager = await shop.manager()
        await shop.node("gw-1")
        shop.put("no-truck")
        order = await shop.order()
        await shop.sees("releasing")

        manager.kill()
        shop.put("go-on")
        await shop.manager()

        with pytest.raises(ActionFailed, match="step ship: RuntimeError: no truck"):
            await order.result(WITHIN_S)
        assert shop.journal() == ["charged 995", "reserved", "released 7", "refunded 995 by receipt of 995"]
        assert [(step.name, step.outcome) for step in await shop.steps(order)] == [
            ("charge", "ok"),
            ("reserve", "ok"),
            ("ship", "failed"),
            ("reserve.compensation", "ok"),
            ("charge.compensation", "ok"),
        ]
        await shop.every_task_has_one_end({order.id})


@pytest.mark.rabbitmq
async def test_a_compensation_that_fails_is_told_repeated_on_request_and_then_the_task_can_run_again(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Shop(tmp_path, rabbit) as shop:
        await shop.manager()
        await shop.node("gw-1")
        shop.put("no-truck", "bank-is-closed", "go-on")
        order = await shop.order()
        with pytest.raises(ActionFailed, match=r"no truck; step charge could not be compensated: .*the bank is closed"):
            await order.result(WITHIN_S)
        story = await shop.canoa("task", "show", order.id)

        (tmp_path / "bank-is-closed").unlink()
        undone = await shop.canoa("task", "rerun", order.id, "--watch")
        (tmp_path / "no-truck").unlink()
        again = await shop.canoa("task", "rerun", order.id, "--watch")

        assert "└─ charge.compensation   failed     plant.refund  undoes charge" in story
        assert "charge.compensation: ok on gw-1" in undone
        assert "could not be compensated" not in undone
        assert '"on its way"' in again
        assert shop.journal() == [
            *("charged 995", "reserved", "released 7", "refunded 995 by receipt of 995"),
            *("charged 995", "reserved", "shipped"),
        ]


@pytest.mark.rabbitmq
async def test_a_step_that_did_not_answer_in_time_is_undone_as_well(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Shop(tmp_path, rabbit) as shop:
        await shop.manager()
        await shop.node("gw-1")
        shop.put("lost-truck", "go-on")

        with pytest.raises(ActionTimedOut):
            await (await shop.order()).result(WITHIN_S)

        done = ["charged 995", "reserved", "shipped"]
        undone = ["fetched back None", "released 7", "refunded 995 by receipt of 995"]
        assert shop.journal() == done + undone


@pytest.mark.rabbitmq
async def test_a_cancelled_task_ends_once_what_it_did_is_undone(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Shop(tmp_path, rabbit, ship_within_s=60) as shop:
        await shop.manager()
        await shop.node("gw-1")
        shop.put("lost-truck")
        order = await shop.order()
        await shop.sees("shipped")

        said = await shop.canoa("cancel", order.id)
        shop.put("go-on")

        with pytest.raises(TaskCancelled):
            await order.result(WITHIN_S)
        assert "it ends once what it did is compensated" in said
        assert shop.journal()[-3:] == ["fetched back None", "released 7", "refunded 995 by receipt of 995"]
        told = json.loads(await shop.canoa("task", "show", order.id, "--json"))
        assert {step["name"]: step["compensates"] for step in told["steps"] if step["compensates"]} == {
            "ship.compensation": "ship",
            "reserve.compensation": "reserve",
            "charge.compensation": "charge",
        }
