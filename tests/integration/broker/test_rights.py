"""Logins and rights that are missing or get lost: each refusal on its own, and consumers end loudly."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import pytest
from tests.contract.broker.inbox import Inbox, letter
from tests.integration.broker.world import PASSWORD, QUICK, WITHIN_S, as_user, eventually

from canoa.broker.port import Queue
from canoa.errors import BrokerRefusedLogin, BrokerRefusedOperation, BrokerUnreachable, QueueMissing

if TYPE_CHECKING:
    from tests.integration.broker.conftest import NewBroker

    from canoa.broker.rabbitmq import RabbitBroker
    from canoa.testing import RabbitNode, TcpProxy


class User:
    """With rights of its own in the test's virtual host."""

    def __init__(self, node: RabbitNode, vhost: str) -> None:
        self.name = f"user-{secrets.token_hex(4)}"
        self._node = node
        self._vhost = vhost

    async def create(self) -> None:
        await asyncio.to_thread(self._node.ctl, "add_user", self.name, PASSWORD)
        await self.may(".*", ".*", ".*")

    async def may(self, configure: str, write: str, read: str) -> None:
        rights = (configure, write, read)
        await asyncio.to_thread(self._node.ctl, "set_permissions", "--vhost", self._vhost, self.name, *rights)

    async def gets_another_password(self) -> None:
        await asyncio.to_thread(self._node.ctl, "change_password", self.name, "battery-staple")


@pytest.fixture
async def user(rabbit_node: RabbitNode, rabbit_url: str) -> User:
    user = User(rabbit_node, rabbit_url.rpartition("/")[2])
    await user.create()
    return user


async def test_what_the_broker_does_not_permit_is_refused_each_on_its_own(
    user: User, new_broker: NewBroker, control: RabbitBroker, rabbit_url: str
) -> None:
    await user.may("^$", "^$", "^$")
    broker = await new_broker(as_user(rabbit_url, user.name))

    with pytest.raises(BrokerRefusedOperation, match="ACCESS_REFUSED"):
        await broker.declare(Queue(name="mine"))
    with pytest.raises(BrokerRefusedOperation, match="ACCESS_REFUSED"):
        await broker.consume("q", Inbox(), prefetch=1)
    with pytest.raises(BrokerRefusedOperation, match="ACCESS_REFUSED"):
        await broker.publish(letter("q"))
    with pytest.raises(QueueMissing):
        await broker.depth("nowhere")


async def test_a_right_that_was_lost_while_consuming_ends_the_consumer_loudly_after_a_cut(
    user: User, new_broker: NewBroker, control: RabbitBroker, proxy: TcpProxy, rabbit_url: str
) -> None:
    broker = await new_broker(as_user(proxy.via(rabbit_url), user.name))
    consumer = await broker.consume("q", Inbox(), prefetch=1)
    await user.may("^$", "^$", "^$")

    proxy.cut()
    proxy.restore()

    with pytest.raises(BrokerRefusedOperation, match="ACCESS_REFUSED"):
        async with asyncio.timeout(WITHIN_S):
            await consumer.wait_ended()


async def test_a_password_that_became_wrong_ends_consumers_loudly_and_publishers_hear_why(
    user: User,
    new_broker: NewBroker,
    control: RabbitBroker,
    proxy: TcpProxy,
    rabbit_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await new_broker(as_user(proxy.via(rabbit_url), user.name))
    consumer = await broker.consume("q", Inbox(), prefetch=1)
    await user.gets_another_password()

    proxy.cut()
    await eventually(lambda: proxy.link_count == 0)
    publishing = asyncio.create_task(broker.publish(letter("q")))
    proxy.restore()

    async with asyncio.timeout(QUICK.login_patience_s + 2):
        with pytest.raises(BrokerRefusedLogin, match="check user, password"):
            await consumer.wait_ended()
        with pytest.raises(BrokerUnreachable, match="check user, password"):
            await publishing
        with pytest.raises(BrokerUnreachable, match="check user, password"):
            await broker.publish(letter("q"))
        with pytest.raises(BrokerRefusedLogin):
            await broker.depth("q")
    assert "broker_link_given_up" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_publisher_that_is_shut_out_for_good_ends_the_consumers_too(
    user: User, new_broker: NewBroker, control: RabbitBroker, rabbit_url: str
) -> None:
    """Who cannot answer any more must not go on taking work."""
    broker = await new_broker(as_user(rabbit_url, user.name))
    await control.declare(Queue(name="q"))
    consumer = await broker.consume("q", Inbox(), prefetch=1)
    publisher = broker._publisher
    assert publisher is not None

    publisher.fail(BrokerRefusedLogin("the broker refuses the login"))

    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(BrokerRefusedLogin):
            await consumer.wait_ended()
