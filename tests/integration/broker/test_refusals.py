"""What cannot work is said at once, with the remedy and never with the password."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.integration.broker.world import PASSWORD, QUICK, as_user, keepers

from canoa.broker.rabbitmq import RabbitBroker, RabbitSettings
from canoa.errors import BrokerRefusedLogin, BrokerUnreachable, CanoaError, SettingError
from canoa.testing import free_port
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def refusal(url: str) -> CanoaError:
    """What opening says; nothing goes on trying."""
    broker = RabbitBroker(url, settings=QUICK)
    with pytest.raises(CanoaError) as refused:
        await broker.open()
    assert PASSWORD not in str(refused.value)
    assert PASSWORD not in repr(broker)
    assert keepers() == []
    return refused.value


async def test_a_wrong_password_is_refused_with_the_remedy(rabbit_url: str) -> None:
    error = await refusal(as_user(rabbit_url, "guest"))

    assert isinstance(error, BrokerRefusedLogin)
    assert "check user, password and virtual host" in str(error)


async def test_a_missing_virtual_host_is_named(rabbit_url: str) -> None:
    error = await refusal(as_user(rabbit_url, "guest", "guest", vhost="nowhere"))

    assert isinstance(error, BrokerRefusedLogin)
    assert "nowhere" in str(error)
    assert "virtual host" in str(error)


async def test_a_place_where_nobody_listens_is_named() -> None:
    port = free_port()

    error = await refusal(f"amqp://guest:{PASSWORD}@{LOOPBACK}:{port}/")

    assert isinstance(error, BrokerUnreachable)
    assert f"{LOOPBACK}:{port}" in str(error)
    assert "check that it runs" in str(error)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid", "a..b"])
async def test_a_host_that_cannot_be_found_is_named(host: str) -> None:
    error = await refusal(f"amqp://guest:{PASSWORD}@{host}/")

    assert isinstance(error, BrokerUnreachable)
    assert host in str(error)


@asynccontextmanager
async def server(greeting: bytes, *, hangs_up: bool = False) -> AsyncIterator[str]:
    """Something that listens and is no broker; gives the URL that leads there by mistake."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        if not hangs_up:
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(answer, LOOPBACK, 0)
    async with listening:
        yield f"amqp://guest:{PASSWORD}@{LOOPBACK}:{listening.sockets[0].getsockname()[1]}/"
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"AMQP\x00\x01\x00\x00"],
    ids=["HTTP", "SSH", "AMQP 1.0"],
)
async def test_a_server_that_speaks_something_else_is_recognised(greeting: bytes) -> None:
    async with server(greeting) as url:
        error = await refusal(url)

    assert isinstance(error, BrokerUnreachable)
    assert "does not speak AMQP 0-9-1" in str(error)
    assert "check that it runs, and that the URL's host and port" in str(error)


async def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    async with server(b"") as url, asyncio.timeout(QUICK.connect_timeout_s + 1):
        error = await refusal(url)

    assert isinstance(error, BrokerUnreachable)
    assert "did not answer within 2 s" in str(error)


@pytest.mark.parametrize(
    ("last_words", "kind"),
    [(b"", BrokerUnreachable), (b"\x15\x03\x03\x00\x02\x02F", SettingError)],
    ids=["silently", "after a TLS alert"],
)
async def test_a_server_that_hangs_up_is_named(last_words: bytes, kind: type[CanoaError]) -> None:
    async with server(last_words, hangs_up=True) as url:
        error = await refusal(url)

    assert isinstance(error, kind)
    assert urlsplit(url).netloc.rpartition("@")[2] in str(error)


@pytest.mark.parametrize(
    "url",
    [
        f"http://guest:{PASSWORD}@localhost/",
        f"//guest:{PASSWORD}@localhost/",
        f"guest:{PASSWORD}@localhost",
        f"{PASSWORD}",
        f"amqp://guest:{PASSWORD}/2@localhost/",
        f"amqp://guest:{PASSWORD}@localhost:rabbit/",
        f"amqp:///{PASSWORD}",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(SettingError, match="amqp://user:password@host:5672/vhost") as refused:
        RabbitBroker(url)

    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("setting", [{"heartbeat_s": 0}, {"window": 0}])
def test_settings_that_would_leave_it_deaf_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(setting))}=0"):
        RabbitSettings(**setting)
