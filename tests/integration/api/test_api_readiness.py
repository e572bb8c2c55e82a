"""Readiness: proven by a message through the broker, cheap to ask for, and told with the reason when there is none."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.integration.api.world import in_process, listening
from tests.integration.broker.world import QUICK

from canoa import Canoa
from canoa.api.readiness import Readiness, Verdict, probing
from canoa.broker.memory import MemoryBroker, MemoryHub
from canoa.broker.rabbitmq import RabbitBroker
from canoa.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.api.paper_desk import PaperDesk

    from canoa.broker.port import Broker, Publication
    from canoa.testing import RabbitNode
    from canoa.testing.pytest_plugin import ProxyFactory

WITHIN_S = 15.0


class Counting(MemoryBroker):
    """Counts what is published through it; `is_deaf` swallows it."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.published = 0
        self.is_deaf = False

    async def publish(self, publication: Publication) -> None:
        self.published += 1
        if not self.is_deaf:
            await super().publish(publication)


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def new_broker(request: pytest.FixtureRequest) -> Callable[[], Broker]:
    if request.param == "memory":
        return partial(MemoryBroker, MemoryHub())
    return partial(RabbitBroker, request.getfixturevalue("rabbit_url"), settings=QUICK)


async def eventually_ready(readiness: Readiness, *, is_ready: bool) -> Verdict:
    async with asyncio.timeout(WITHIN_S):
        while True:
            verdict = await readiness.verdict()
            if (verdict.round_trip_ms is not None) == is_ready:
                return verdict
            await asyncio.sleep(0.02)


# --- Both brokers ---------------------------------------------------------------------------------------------


async def test_a_message_goes_through_the_broker_and_its_time_is_told(new_broker: Callable[[], Broker]) -> None:
    async with probing(new_broker) as readiness:
        verdict = await readiness.verdict()

    assert verdict.reason is None
    assert verdict.round_trip_ms is not None
    assert 0 < verdict.round_trip_ms < 2000


async def test_the_probes_queue_leaves_with_it(new_broker: Callable[[], Broker]) -> None:
    async with probing(new_broker, every_s=0) as readiness:
        await eventually_ready(readiness, is_ready=True)
        queue = readiness.queue
    control = new_broker()
    await control.open()

    with pytest.raises(Exception, match="does not exist"):
        await control.depth(queue)

    await control.aclose()


async def test_a_probe_queue_that_is_deleted_comes_back(new_broker: Callable[[], Broker]) -> None:
    control = new_broker()
    await control.open()
    async with probing(new_broker, every_s=0, within_s=0.5) as readiness:
        await eventually_ready(readiness, is_ready=True)

        await control.delete_queue(readiness.queue)

        await eventually_ready(readiness, is_ready=True)
    await control.aclose()


# --- Sharing, limits --------------------------------------------------------------------------------------------


async def test_all_who_ask_within_a_second_share_one_probe() -> None:
    broker, now_s = Counting(MemoryHub()), 100.0
    async with probing(lambda: broker, now=lambda: now_s) as readiness:
        await asyncio.gather(*(readiness.verdict() for _ in range(50)))
        now_s += 0.999
        await readiness.verdict()
        assert broker.published == 1

        now_s += 0.001
        await asyncio.gather(*(readiness.verdict() for _ in range(50)))

    assert broker.published == 2


async def test_one_who_asks_no_more_does_not_end_the_probe_of_the_others() -> None:
    broker = Counting(MemoryHub())
    async with probing(lambda: broker) as readiness:
        first, second = (asyncio.create_task(readiness.verdict()) for _ in range(2))
        await asyncio.sleep(0)

        first.cancel()

        assert (await second).reason is None


async def test_a_broker_that_takes_messages_and_delivers_none_is_not_ready() -> None:
    broker = Counting(MemoryHub())
    async with probing(lambda: broker, within_s=0.05, every_s=0) as readiness:
        await eventually_ready(readiness, is_ready=True)

        broker.is_deaf = True

        verdict = await readiness.verdict()
        assert verdict.reason == "no message came back through the broker within 0.05 s"
        broker.is_deaf = False
        await eventually_ready(readiness, is_ready=True)


async def test_a_broker_that_is_not_there_is_the_reason_told() -> None:
    class Absent(MemoryBroker):
        async def open(self) -> None:
            raise BrokerUnreachable("nobody listens at broker.example")

    async with probing(Absent, within_s=0.05) as readiness:
        verdict = await readiness.verdict()

    assert verdict.reason is not None
    assert verdict.reason.endswith("nobody listens at broker.example")


# --- Over HTTP ------------------------------------------------------------------------------------------------------


async def test_readyz_says_200_and_how_long_it_took(app: Canoa, desk: PaperDesk) -> None:
    async with in_process(app, desk) as client:
        answer = await client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert answer.json()["round_trip_ms"] > 0


@pytest.mark.rabbitmq
async def test_a_cut_link_is_told_with_503_and_ready_again_when_it_is_back(
    tcp_proxy: ProxyFactory, rabbit_url: str
) -> None:
    proxy = await tcp_proxy(rabbit_url)
    async with listening(Canoa("shop", broker=proxy.via(rabbit_url)), None) as client:

        async def until_status(status: int) -> str:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    answer = await client.get("/readyz")
                    if answer.status_code == status:
                        return answer.text
                    await asyncio.sleep(0.05)

        await until_status(200)
        proxy.cut()
        said = await until_status(503)
        assert "NotReady" in said
        assert "guest" not in said
        proxy.restore()
        await until_status(200)


@pytest.mark.rabbitmq
async def test_a_link_that_went_silent_is_not_ready_long_before_its_heartbeat_ends(
    tcp_proxy: ProxyFactory, rabbit_url: str
) -> None:
    proxy = await tcp_proxy(rabbit_url)
    async with probing(partial(RabbitBroker, proxy.via(rabbit_url)), within_s=0.5, every_s=0) as readiness:
        await eventually_ready(readiness, is_ready=True)

        proxy.stall()

        started_s = time.monotonic()
        assert (await readiness.verdict()).reason is not None
        assert time.monotonic() - started_s < 2
        proxy.resume()
        await eventually_ready(readiness, is_ready=True)


@pytest.mark.rabbitmq
async def test_a_broker_that_starts_later_makes_it_ready(rabbit_node: RabbitNode, rabbit_url: str) -> None:
    rabbit_node.kill()
    async with probing(partial(RabbitBroker, rabbit_url, settings=QUICK), within_s=0.2, every_s=0) as readiness:
        assert (await readiness.verdict()).reason is not None

        await asyncio.to_thread(rabbit_node.start)

        await eventually_ready(readiness, is_ready=True)
