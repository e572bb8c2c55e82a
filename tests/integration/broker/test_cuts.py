"""Links that are cut, go silent, hear no more or crawl: found in time, and everything goes on afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.contract.broker.inbox import Inbox, letter
from tests.integration.broker.world import (
    HEARTBEAT_S,
    QUICK,
    WITHIN_S,
    Traffic,
    eventually,
    has_all,
    hears,
    until_consumers,
)

from canoa.broker.port import Queue, Settlement
from canoa.errors import BrokerUnreachable, DeliveryUnknown

if TYPE_CHECKING:
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import TcpProxy

LARGE = bytes(100 * 1024)
SLACK_S = 0.7  # for a busy machine


async def test_no_confirmed_message_is_missing_after_cuts_under_load(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy
) -> None:
    async with Traffic(broker) as traffic:
        for _ in range(3):
            await traffic.flows()
            proxy.cut()
            proxy.restore()
        await traffic.flows()

    await has_all(inbox, traffic)


async def test_a_consumer_knows_that_it_does_not_listen_while_its_link_is_cut(
    broker: RabbitBroker, proxy: TcpProxy
) -> None:
    recovered = asyncio.Event()
    consumer = await broker.consume(
        "ears", Inbox(), prefetch=1, topology=[Queue(name="ears")], on_recovered=lambda _: recovered.set()
    )

    proxy.cut()
    await eventually(lambda: not consumer.is_listening)
    proxy.restore()
    async with asyncio.timeout(WITHIN_S):
        await recovered.wait()

    assert consumer.is_listening


async def test_a_cut_in_mid_message_loses_no_confirmed_large_message(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy
) -> None:
    async with Traffic(broker, body=LARGE) as traffic:
        for _ in range(3):
            await traffic.flows(10)
            proxy.slow(bytes_per_s=1_000_000)  # a message takes 100 ms now
            await traffic.flows(1)
            proxy.cut()
            proxy.resume()
            proxy.restore()
        await traffic.flows(10)

    await has_all(inbox, traffic)
    assert {len(body.partition(b" ")[2]) for body in inbox.bodies} == {len(LARGE)}


async def test_what_is_published_while_the_link_is_down_is_sent_when_it_is_back(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy
) -> None:
    proxy.cut()
    await eventually(lambda: proxy.link_count == 0)
    publishing = asyncio.gather(*(broker.publish(letter("q", b"%d" % number)) for number in range(5)))
    await asyncio.sleep(0)

    proxy.restore()

    await publishing
    await eventually(lambda: inbox.bodies == [b"0", b"1", b"2", b"3", b"4"])


async def test_what_was_in_hand_when_the_link_broke_is_no_longer_ours_and_comes_again(
    broker: RabbitBroker, control: RabbitBroker, proxy: TcpProxy
) -> None:
    inbox = Inbox()
    await broker.consume("q", inbox, prefetch=1)
    await control.publish(letter("q", b"once"))
    before = await inbox.take_one()

    proxy.cut()
    proxy.restore()

    again = await inbox.take_one()
    assert again.message.body == b"once"
    assert again.redelivered
    assert before.is_settled
    assert not before.settle()
    assert again.settle()


async def test_a_silently_dead_link_is_found_within_two_heartbeats(
    new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    heartbeat_s = 2
    broker = await new_broker(proxy.via(rabbit_url), msgspec.structs.replace(QUICK, heartbeat_s=heartbeat_s))
    inbox = Inbox(Settlement.ACK)
    await broker.consume("q", inbox, prefetch=1)
    proxy.stall()
    publishing = asyncio.create_task(broker.publish(letter("q", b"in doubt")))

    took_s = await eventually(lambda: proxy.link_count >= 4)  # two that are dead, and two new attempts

    assert took_s < 2 * heartbeat_s + SLACK_S
    with pytest.raises(DeliveryUnknown):
        await publishing
    proxy.resume()
    await hears(inbox, control)
    await broker.publish(letter("q", b"after"))


async def test_a_link_on_which_the_broker_hears_nothing_is_replaced(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy, control: RabbitBroker
) -> None:
    proxy.drop_client_to_server()
    publishing = asyncio.create_task(broker.publish(letter("q", b"in doubt")))

    with pytest.raises((DeliveryUnknown, BrokerUnreachable)):
        await publishing
    await until_consumers(control, 0)
    proxy.resume()

    await hears(inbox, control)
    await broker.publish(letter("q", b"after"))


async def test_a_slow_link_delivers_and_keeps_its_heartbeat(
    broker: RabbitBroker, inbox: Inbox, proxy: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.slow(delay_s=0.02, bytes_per_s=80_000)  # 100 KiB there and back take longer than two heartbeats

    await broker.publish(letter("q", LARGE))

    await eventually(lambda: inbox.bodies == [LARGE])
    assert proxy.link_count == 2
    assert "broker_link_lost" not in caplog.text


CONSUMES = f"""
import asyncio, sys
from canoa.broker.rabbitmq import RabbitBroker, RabbitSettings

async def main() -> None:
    broker = RabbitBroker(sys.argv[1], settings=RabbitSettings(heartbeat_s={HEARTBEAT_S}, reconnect_max_s=0.2))
    await broker.open()
    def show(delivery):
        print(delivery.message.body.decode(), flush=True)
        delivery.settle()
    await broker.consume("q", show, prefetch=1)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_that_was_stopped_for_longer_than_two_heartbeats_consumes_again(
    control: RabbitBroker, rabbit_url: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONSUMES, rabbit_url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await until_consumers(control, 1)
        os.kill(process.pid, signal.SIGSTOP)
        await until_consumers(control, 0)  # the broker gave it up

        os.kill(process.pid, signal.SIGCONT)
        await control.publish(letter("q", b"welcome back"))

        async with asyncio.timeout(WITHIN_S):
            assert await process.stdout.readline() == b"welcome back\n"
    finally:
        process.kill()
        await process.wait()


async def test_every_consumer_of_a_broker_comes_back(
    control: RabbitBroker, broker: RabbitBroker, proxy: TcpProxy
) -> None:
    inboxes = [Inbox(Settlement.ACK) for _ in range(10)]
    for inbox in inboxes:
        await broker.consume("q", inbox, prefetch=1)

    proxy.cut()
    await until_consumers(control, 0)
    proxy.restore()

    await until_consumers(control, 10)
