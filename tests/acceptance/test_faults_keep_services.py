"""The services under recorders: RabbitMQ killed, its link cut, stalled and silently dead; PostgreSQL killed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.kept_depot import WITHIN_S, KeptDepot, asked

from canoa.api.documents import PREFIX

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.kept_depot import Rabbit
    from tests.acceptance.shell import Process

    from canoa.testing import PostgresNode, TcpProxy
    from canoa.testing.pytest_plugin import ProxyFactory

DOUBLE = {"action": "depot.double", "arguments": {"number": 7}}
TROUBLE_S = 2.0


@pytest.mark.rabbitmq
async def test_rabbitmq_is_killed_and_started_again_while_tasks_are_accepted_run_and_recorded(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    async with KeptDepot(tmp_path, rabbit) as depot:
        await depot.recorder()

        async with depot.load():
            await depot.some_results()
            await asyncio.to_thread(rabbit.node.kill)
            await asyncio.to_thread(rabbit.node.start)
            await depot.submit(20)

        await depot.everything_is_recorded_once_and_nothing_is_left()


def cut(proxy: TcpProxy) -> None:
    proxy.cut()


def stall(proxy: TcpProxy) -> None:
    proxy.stall()


def deafen(proxy: TcpProxy) -> None:
    """What the recorder says is lost: its heartbeats, its acknowledgements and its confirms, too."""
    proxy.drop_client_to_server()


@pytest.mark.rabbitmq
@pytest.mark.parametrize("trouble", [cut, stall, deafen])
async def test_a_recorder_whose_link_to_the_broker_fails_goes_on_when_it_is_back(
    tmp_path: Path, rabbit: Rabbit, tcp_proxy: ProxyFactory, trouble: object
) -> None:
    proxy = await tcp_proxy(rabbit.url)
    async with KeptDepot(tmp_path, rabbit) as depot:
        recorder = await depot.recorder(CANOA_BROKER=proxy.via(rabbit.url), CANOA_HEARTBEAT_S="1")

        async with depot.load():
            await depot.some_results()
            trouble(proxy)  # type: ignore[operator]
            await asyncio.sleep(TROUBLE_S)  # long enough for both sides to give the link up
            proxy.restore()
            proxy.resume()
            await depot.submit(20)

        await depot.everything_is_recorded_once_and_nothing_is_left()
        assert recorder.is_alive


@pytest.mark.rabbitmq
@pytest.mark.postgres
async def test_postgresql_is_killed_under_load_and_the_recorder_recovers_by_itself(
    tmp_path: Path, rabbit: Rabbit, postgres_node: PostgresNode, postgres_url: str
) -> None:
    async with KeptDepot(tmp_path, rabbit, postgres_url) as depot:
        recorder = await depot.recorder("--port", "0")

        async with depot.load():
            await depot.some_results()
            await asyncio.to_thread(postgres_node.kill)
            status, said = await asked(recorder, f"{PREFIX}/tasks", DOUBLE)
            assert (status, "StoreUnreachable" in said) == (503, True)
            await asyncio.to_thread(postgres_node.start)
            await _accepted_again(recorder)

        await depot.every_handle_has_its_result()
        await rabbit.wait_empty()
        assert recorder.is_alive
        assert recorder.said.count("store_does_not_write") == recorder.said.count("store_writes_again") > 0


async def _accepted_again(recorder: Process) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await asked(recorder, f"{PREFIX}/tasks", DOUBLE))[0] == 503:
            pass
