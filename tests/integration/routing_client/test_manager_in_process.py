"""`app.manager()`: plans and routed actions in one program, over the memory broker or RabbitMQ."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.integration.routing_client.plant import WITHIN_S

from canoa import Canoa, Context, Layer, Placement
from canoa.errors import SettingError, StoreTaken, WrongUse

if TYPE_CHECKING:
    from pathlib import Path

EDGE, CLOUD = Layer.EDGE, Layer.CLOUD


class Meter:
    """An app of two actions and a plan; what ran, and a gate that holds `slow` up."""

    def __init__(self, broker: str = "memory://") -> None:
        self.app = Canoa("meter", broker=broker)
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.read = self.app.action(name="read", placement=Placement(layers=(EDGE,)))(self._read)
        self.double = self.app.action(name="double")(self._double)
        self.slow = self.app.action(name="slow", timeout=None)(self._slow)
        self.plan = self.app.plan("doubled")
        self.plan.step(self.double, self.plan.step(self.read, self.plan.input["number"]))

    async def _read(self, number: int) -> int:
        return number

    async def where(self, ctx: Context) -> str:
        """On which node it runs."""
        return str(ctx.node_id)

    async def _double(self, number: int) -> int:
        return 2 * number

    async def _slow(self) -> str:
        self.began.set()
        await self.gate.wait()
        return "done"


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def broker(request: pytest.FixtureRequest) -> str:
    return "memory://" if request.param == "memory" else str(request.getfixturevalue("rabbit_url"))


async def test_plans_and_routed_actions_run_in_one_program(broker: str, tmp_path: Path) -> None:
    meter = Meter(broker)
    store = f"sqlite:///{tmp_path}/canoa.db"
    async with meter.app, meter.app.manager(store=store) as manager, meter.app.worker(node_id="gw", layer=EDGE):
        handle = await meter.plan.submit(number=21)

        assert await handle.result(WITHIN_S) == 42
        assert await meter.double.using(dispatch="routed").call(4) == 8
        story = await manager.story(handle.id)
        [node] = await manager.nodes()
        by_name = await (await meter.app.session()).submit_plan("doubled", {"number": 3})
        assert await by_name.result(WITHIN_S) == 6

    assert [(step.name, step.node_id, step.outcome) for step in story.steps] == [
        ("read", "gw", "ok"),
        ("double", "gw", "ok"),
    ]
    assert (node.id, node.layer) == ("gw", "EDGE")


async def test_whoever_enters_a_worker_can_route_to_it_at_once_also_to_the_second_one() -> None:
    meter = Meter()
    async with (
        meter.app,
        meter.app.manager() as manager,
        meter.app.worker(node_id="office", layer=CLOUD, site="recife"),
        meter.app.worker(node_id="gw", layer=EDGE, labels={"line": "3"}),
    ):
        there = {node.id: (node.state, node.site, node.labels) for node in await manager.nodes()}
        assert await meter.read.using(dispatch="routed").call(7) == 7

    assert there == {"office": ("here", "recife", {}), "gw": ("here", "", {"line": "3"})}


async def test_what_is_to_be_near_runs_where_its_caller_stands(broker: str, tmp_path: Path) -> None:
    meter = Meter(broker)
    near = Placement(near="require")
    where = meter.app.action(name="where", placement=near)(meter.where)
    plan = meter.app.plan("where")
    plan.step(where, name="first", placement=near)
    store = f"sqlite:///{tmp_path}/canoa.db"
    async with (
        meter.app,
        meter.app.manager(store=store),
        meter.app.worker(node_id="natal-1", site="natal"),
        meter.app.worker(node_id="recife-1", site="recife"),
    ):
        routed = [await where.using(dispatch="routed", site="recife").call() for _ in range(3)]
        planned = [await plan.using(site="natal").call() for _ in range(3)]
        meter.app.settings = msgspec.structs.replace(meter.app.settings, site="natal")  # as CANOA_SITE says it
        by_setting = [await where.using(dispatch="routed").call() for _ in range(3)]
        otherwise = [await where.using(dispatch="routed", site="").call() for _ in range(4)]

    assert routed == ["recife-1"] * 3
    assert planned == by_setting == ["natal-1"] * 3
    assert set(otherwise) == {"natal-1", "recife-1"}


async def test_a_worker_that_was_there_before_is_known_as_well() -> None:
    meter = Meter()
    async with meter.app, meter.app.worker(layer=EDGE), meter.app.manager():
        assert await meter.plan.call(number=2) == 4


async def test_without_a_store_that_is_named_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    meter = Meter()

    async with meter.app, meter.app.manager(), meter.app.worker(layer=EDGE):
        inside = found_in(tmp_path)
        await meter.plan.call(number=2)

    assert "canoa.db" in inside
    assert found_in(tmp_path) == []
    assert (meter.app.managing, meter.app.acceptor) == (None, None)


def found_in(folder: Path) -> list[str]:
    return [each.name for each in folder.rglob("*")]


async def test_what_was_accepted_is_done_by_the_next_start_on_the_same_store(tmp_path: Path) -> None:
    """As after a kill: the program ended while they ran."""
    store = f"sqlite:///{tmp_path}/canoa.db"
    first = Meter()
    async with first.app, first.app.manager(store=store), first.app.worker(drain_s=0):
        routed = await first.slow.using(dispatch="routed").submit()
        await asyncio.wait_for(first.began.wait(), WITHIN_S)
        kept = await first.slow.using(result="keep").submit()

    second = Meter()
    second.gate.set()
    async with second.app, second.app.manager(store=store), second.app.worker():
        results = [await second.app.handle(each.id).result(WITHIN_S) for each in (routed, kept)]

    assert results == ["done", "done"]


async def test_a_second_manager_of_an_app_is_refused() -> None:
    meter = Meter()
    async with meter.app, meter.app.manager():
        with pytest.raises(WrongUse, match="one is enough"):
            async with meter.app.manager():
                pass
        assert meter.app.managing is not None


async def test_of_two_managers_that_are_started_at_once_one_is_refused_and_the_other_works() -> None:
    meter = Meter()
    async with meter.app, AsyncExitStack() as stack:
        starting = [stack.enter_async_context(meter.app.manager()) for _ in range(2)]
        started = await asyncio.gather(*starting, return_exceptions=True)

        assert sorted(type(each).__name__ for each in started) == ["LocalManager", "WrongUse"]
        assert meter.app.managing is not None

    async with meter.app, meter.app.manager():
        assert meter.app.managing is not None


async def test_two_programs_do_not_share_a_store_over_memory_brokers(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/canoa.db"
    first, second = Meter(), Meter()
    async with first.app, second.app, first.app.manager(store=store):
        with pytest.raises(StoreTaken):
            async with second.app.manager(store=store):
                pass


@pytest.mark.rabbitmq
async def test_on_a_real_broker_a_store_must_be_named(rabbit_url: str) -> None:
    meter = Meter(rabbit_url)
    async with meter.app:
        with pytest.raises(SettingError, match="CANOA_STORE"):
            async with meter.app.manager():
                pass


@pytest.mark.parametrize("missing", ["aiohttp", "sqlalchemy"])
def test_without_the_server_extra_the_error_names_the_command_to_install_it(missing: str) -> None:
    code = f"""
import asyncio, sys
sys.modules[{missing!r}] = None
from canoa import Canoa

async def main() -> None:
    async with Canoa("meter").manager():
        pass

asyncio.run(main())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env={})

    assert run.returncode == 1
    said = run.stderr.splitlines()[-1]
    assert said.startswith("canoa.errors.SettingError: ")
    assert f"needs {missing}; install it with: pip install 'canoa[server]'" in said
