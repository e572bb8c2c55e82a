"""A node that follows the published wire alone, in a process without Canoa, joins, works, and outlives its managers."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.plant import WITHIN_S, Plant, until_true
from tests.acceptance.shell import ROOT

from canoa.action import Options
from canoa.vocabulary import Layer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit

SCRIPT = ROOT / "examples" / "bare_node.py"
PAGE = ROOT / "docs" / "howto" / "join-a-node.md"
ROUTED = Options(dispatch="routed")


@pytest.mark.rabbitmq
async def test_a_bare_node_registers_takes_a_message_answers_and_survives_a_manager_restart(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        manager = await plant.manager()
        node = plant.shell.start(sys.executable, str(SCRIPT), rabbit.url, "bench-3", PYTHONPATH="")
        await until_true(lambda: _is_known(plant, "bench-3"))
        assert await _doubled(plant, 21) == {"doubled": 42}

        manager.kill()
        late = await plant.app.submit_raw("bare.double", b'{"number": 4}', options=ROUTED)
        await plant.manager()

        assert await late.result(WITHIN_S) == {"doubled": 8}
        assert await _doubled(plant, 5) == {"doubled": 10}
        assert node.is_alive


@pytest.mark.rabbitmq
async def test_a_bare_node_outlives_its_broker_and_works_on(tmp_path: Path, rabbit: Rabbit) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        await plant.manager()
        node = plant.shell.start(sys.executable, str(SCRIPT), rabbit.url, "bench-3", PYTHONPATH="")
        await until_true(lambda: _is_known(plant, "bench-3"))
        assert await _doubled(plant, 21) == {"doubled": 42}

        await asyncio.to_thread(rabbit.node.kill)
        await asyncio.to_thread(node.wait_logged, "no link: ")
        await asyncio.to_thread(rabbit.node.start)

        assert await _doubled(plant, 5) == {"doubled": 10}
        assert node.is_alive


@pytest.mark.rabbitmq
async def test_a_bare_node_that_was_there_before_the_first_manager_is_found_by_it(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with Plant(tmp_path, rabbit) as plant:
        plant.shell.start(sys.executable, str(SCRIPT), rabbit.url, "bench-3", PYTHONPATH="")

        await plant.manager()

        await until_true(lambda: _is_known(plant, "bench-3"))
        row = (await plant.nodes())["bench-3"]
        assert (row.layer, row.type, row.actions) == (Layer.FOG, "bare", ("bare.double",))
        assert await _doubled(plant, 1) == {"doubled": 2}


def test_the_page_shows_the_bare_node_as_it_is_and_it_is_short() -> None:
    code = SCRIPT.read_text()

    assert re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) == [code]
    assert len(code.splitlines()) <= 55
    assert "canoa" not in code.lower().partition('"""\n')[2]


async def _is_known(plant: Plant, node_id: str) -> bool:
    return node_id in await plant.nodes()


async def _doubled(plant: Plant, number: int) -> object:
    handle = await plant.app.submit_raw("bare.double", b'{"number": %d}' % number, options=ROUTED)
    return await handle.result(WITHIN_S)
