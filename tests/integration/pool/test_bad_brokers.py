"""A broker that is not there, or not ours, is refused with its name and the remedy, and never with its password."""

from __future__ import annotations

import asyncio

import pytest

from canoa import BrokerRefusedLogin, BrokerUnreachable, Canoa, WrongUse
from canoa.errors import SettingError


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:5672", r"'localhost:5672' has a scheme nobody speaks; use amqp://user:password@host:5672/vhost"),
        ("http://host", r"has a scheme nobody speaks"),
        ("amqp://", "is not AMQP; write amqp://user:password@host:5672/vhost"),
        (
            "amqp://host:notaport/",
            "the port of the broker URL is not a number; write amqp://user:password@host:5672/vhost",
        ),
    ],
)
async def test_a_broker_url_that_is_none_is_refused_with_a_good_one(url: str, said: str) -> None:
    app = Canoa("shop", broker=url)

    @app.action
    async def resize(path: str) -> str:
        return path

    with pytest.raises(SettingError, match=said):
        await resize.submit("a.png")
    with pytest.raises(SettingError, match=said):
        async with app.worker():
            pass


async def test_a_broker_that_cannot_be_reached_is_named_without_its_password() -> None:
    app = Canoa("shop", broker="amqp://guest:s3cr3t@127.0.0.1:1/")

    @app.action
    async def resize(path: str) -> str:
        return path

    for attempt in (resize.submit("a.png"), app.worker().__aenter__()):
        with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1") as caught:
            await attempt
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(("was", "becomes"), [("guest:guest@", "guest:wr0ng@"), ("test-", "missing-")])
async def test_wrong_credentials_and_virtual_hosts_are_refused_at_once(rabbit_url: str, was: str, becomes: str) -> None:
    app = Canoa("shop", broker=rabbit_url.replace(was, becomes))
    assert app.settings.broker != rabbit_url

    @app.action
    async def resize(path: str) -> str:
        return path

    with pytest.raises(BrokerRefusedLogin) as caught:
        await resize.submit("a.png")
    assert "wr0ng" not in str(caught.value)


async def test_after_a_failed_connection_the_app_can_be_tried_again(rabbit_url: str) -> None:
    app = Canoa("shop", broker="amqp://127.0.0.1:1/")

    @app.action
    async def double(number: int) -> int:
        return number * 2

    with pytest.raises(BrokerUnreachable):
        await double.submit(1)
    app.use_broker(rabbit_url)
    async with app, app.worker():
        assert await double.call(2) == 4


async def test_the_memory_broker_of_another_loop_is_refused_with_what_to_use(memory_app: Canoa) -> None:
    @memory_app.action
    async def double(number: int) -> int:
        return number * 2

    async def elsewhere() -> None:
        await double.submit(1)

    async with memory_app.worker():
        with pytest.raises(WrongUse, match=r"belongs to another event loop of this process; use `app.sync` from other"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert await double.call(2) == 4
        assert await asyncio.to_thread(memory_app.sync.call, double, 3) == 6
