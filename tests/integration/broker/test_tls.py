"""TLS to the broker: verified unless told otherwise, and every way to set it up wrongly says how to put it right."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
import uvloop
from tests.contract.broker.inbox import Inbox, letter
from tests.integration.broker.certificates import Authority, Files, encrypted, in_one_file
from tests.integration.broker.world import QUICK, eventually, hears

from canoa import Canoa
from canoa.broker.amqp.tls import Tls
from canoa.broker.port import Queue, Settlement
from canoa.broker.rabbitmq import RabbitBroker
from canoa.errors import BrokerRefusedLogin, BrokerUnreachable, SettingError
from canoa.testing import RabbitNode
from canoa.testing.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.broker.conftest import NewBroker

    from canoa.testing.pytest_plugin import ProxyFactory

pytestmark = pytest.mark.rabbitmq


class TlsNode:
    """A RabbitMQ with a TLS listener. Its certificate is made out to `localhost`, and can be another one."""

    def __init__(self, folder: Path, *, asks_for_certificates: bool = False) -> None:
        self.authority = Authority(folder, "ours")
        self.stranger = Authority(folder, "other")
        self.port = free_port()
        self._shown = Files(str(folder / "shown.pem"), str(folder / "shown.key"))
        self._put(self.authority.sign("broker", "localhost"))
        config = {
            "listeners.ssl.default": f"127.0.0.1:{self.port}",
            "ssl_options.cacertfile": self.authority.ca,
            "ssl_options.certfile": self._shown.cert,
            "ssl_options.keyfile": self._shown.key,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": str(asks_for_certificates).lower(),
            "ssl_cert_login_from": "common_name",
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "EXTERNAL",
        }
        plugins = ["rabbitmq_auth_mechanism_ssl"]
        self.node = RabbitNode(folder / "node", plugins=plugins, config=config, schedulers=1)

    @property
    def url(self) -> str:
        return f"amqps://guest:guest@localhost:{self.port}/"

    def shows(self, files: Files) -> None:
        """From now on, to new links."""
        self._put(files)
        self.node.ctl("eval", "ssl:clear_pem_cache().")

    def _put(self, files: Files) -> None:
        shutil.copy(files.cert, self._shown.cert)
        shutil.copy(files.key, self._shown.key)


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    tls_node = TlsNode(tmp_path_factory.mktemp("tls"))
    with tls_node.node:
        yield tls_node


@pytest.fixture
def tls_node(shared_node: TlsNode) -> Iterator[TlsNode]:
    good = shared_node.authority.sign("broker", "localhost")
    yield shared_node
    shared_node.shows(good)


async def opened(new_broker: NewBroker, url: str, **files: str | bool) -> RabbitBroker:
    return await new_broker(url, msgspec.structs.replace(QUICK, tls=msgspec.convert(files, Tls)))


async def works(broker: RabbitBroker) -> None:
    """A message goes out and comes back."""
    inbox = Inbox(Settlement.ACK)
    await broker.declare(Queue(name="q"))
    await broker.consume("q", inbox, prefetch=5)
    await broker.publish(letter("q", b"hello"))
    await eventually(lambda: b"hello" in inbox.bodies)


# --- When it is right -------------------------------------------------------------------------------


async def test_a_broker_whose_authority_is_trusted_is_used_as_any_other(
    tls_node: TlsNode, new_broker: NewBroker
) -> None:
    await works(await opened(new_broker, tls_node.url, ca=tls_node.authority.ca))


async def test_an_app_takes_its_certificates_from_the_settings(
    tls_node: TlsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANOA_TLS_CA", tls_node.authority.ca)
    app = Canoa("shop", broker=tls_node.url)

    @app.action
    async def double(number: int) -> int:
        return number * 2

    async with app, app.worker():
        assert await double.call(2) == 4


async def test_without_a_user_the_client_certificate_says_who_we_are(tls_node: TlsNode, new_broker: NewBroker) -> None:
    tls_node.node.ctl("add_user", "shop", "unused-password")
    tls_node.node.ctl("set_permissions", "shop", ".*", ".*", ".*")
    own = tls_node.authority.sign("shop")
    url = tls_node.url.replace("guest:guest@", "")

    broker = await opened(new_broker, url, ca=tls_node.authority.ca, cert=own.cert, key=own.key)

    await works(broker)
    # Beside us: the broker hangs up on a client that is silent while a slow machine looks for the answer.
    connected = await asyncio.to_thread(tls_node.node.ctl, "list_connections", "user")
    assert "shop" in connected.split()


async def test_certificate_and_key_may_stand_in_one_file(tls_node: TlsNode, new_broker: NewBroker) -> None:
    both = in_one_file(tls_node.authority.sign("shop"))

    await works(await opened(new_broker, tls_node.url, ca=tls_node.authority.ca, cert=both))


def test_commands_which_run_on_another_loop_hear_the_same(tls_node: TlsNode) -> None:
    async def opens(ca: str) -> None:
        broker = RabbitBroker(tls_node.url, settings=msgspec.structs.replace(QUICK, tls=Tls(ca=ca)))
        try:
            await broker.open()
            await works(broker)
        finally:
            await broker.aclose()

    uvloop.run(opens(tls_node.authority.ca))
    with pytest.raises(SettingError, match="not signed by an authority we trust"):
        uvloop.run(opens(tls_node.stranger.ca))


async def test_without_verification_any_certificate_will_do(tls_node: TlsNode, new_broker: NewBroker) -> None:
    tls_node.shows(tls_node.stranger.sign("broker", "elsewhere", days=-3))

    await works(await opened(new_broker, tls_node.url, verify=False))


async def test_a_renewed_authority_counts_without_a_restart(
    tls_node: TlsNode, new_broker: NewBroker, tcp_proxy: ProxyFactory, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    shutil.copy(tls_node.authority.ca, trusted)
    proxy = await tcp_proxy(tls_node.url)
    url = proxy.via(tls_node.url).replace("127.0.0.1", "localhost")
    broker, control = await opened(new_broker, url, ca=str(trusted)), await new_broker(tls_node.node.url())
    inbox = Inbox(Settlement.ACK)
    await broker.declare(Queue(name="renewed"))
    await broker.consume("renewed", inbox, prefetch=5)

    tls_node.shows(tls_node.stranger.sign("broker", "localhost"))
    proxy.cut()
    proxy.restore()
    consuming = broker._consuming
    assert consuming is not None
    await eventually(lambda: "not signed by an authority we trust" in consuming.last_error)
    shutil.copy(tls_node.stranger.ca, trusted)

    await hears(inbox, control, "renewed")


async def test_a_line_that_is_silently_dead_is_found_and_made_again(
    tls_node: TlsNode, new_broker: NewBroker, tcp_proxy: ProxyFactory
) -> None:
    proxy = await tcp_proxy(tls_node.url)
    url = proxy.via(tls_node.url).replace("127.0.0.1", "localhost")
    broker, control = await opened(new_broker, url, ca=tls_node.authority.ca), await new_broker(tls_node.node.url())
    inbox = Inbox(Settlement.ACK)
    await broker.declare(Queue(name="silent"))
    await broker.consume("silent", inbox, prefetch=5)

    proxy.stall()
    consuming = broker._consuming
    assert consuming is not None
    await eventually(lambda: consuming.link is None)
    proxy.resume()

    await hears(inbox, control, "silent")


# --- When it is wrong -------------------------------------------------------------------------------


async def test_an_unknown_authority_is_refused(tls_node: TlsNode, new_broker: NewBroker) -> None:
    for files in ({}, {"ca": tls_node.stranger.ca}):
        with pytest.raises(
            SettingError, match=r"not signed by an authority we trust .* set tls_ca to the file with its"
        ):
            await opened(new_broker, tls_node.url, **files)


async def test_a_certificate_for_another_host_is_refused(tls_node: TlsNode, new_broker: NewBroker) -> None:
    url = tls_node.url.replace("localhost", "127.0.0.1")

    with pytest.raises(SettingError, match=r"is not made out to '127\.0\.0\.1'; use a host name that it carries"):
        await opened(new_broker, url, ca=tls_node.authority.ca)


async def test_an_expired_certificate_is_refused_and_worth_another_try(
    tls_node: TlsNode, new_broker: NewBroker
) -> None:
    tls_node.shows(tls_node.authority.sign("broker", "localhost", days=-3))

    with pytest.raises(BrokerUnreachable, match=r"localhost:\d+: the broker's certificate has expired; renew it there"):
        await opened(new_broker, tls_node.url, ca=tls_node.authority.ca)


async def test_a_certificate_of_the_future_points_at_the_clock(tls_node: TlsNode, new_broker: NewBroker) -> None:
    tls_node.shows(tls_node.authority.sign("broker", "localhost", days=10))

    with pytest.raises(BrokerUnreachable, match="is not valid yet; check the clock here"):
        await opened(new_broker, tls_node.url, ca=tls_node.authority.ca)


async def test_tls_to_a_port_without_it_is_told_apart(tls_node: TlsNode, new_broker: NewBroker) -> None:
    url = f"amqps://guest:guest@localhost:{tls_node.node.amqp_port}/"

    with pytest.raises(
        SettingError, match=r"this port does not speak TLS; name the broker's TLS port \(usually 5671\)"
    ):
        await opened(new_broker, url, ca=tls_node.authority.ca)


async def test_a_port_with_tls_is_told_apart_by_who_comes_without(tls_node: TlsNode, new_broker: NewBroker) -> None:
    with pytest.raises(SettingError, match="this port speaks TLS; write amqps:// in the broker's URL"):
        await new_broker(tls_node.url.replace("amqps:", "amqp:"))


async def test_a_broker_that_asks_for_a_certificate_gets_one_or_says_so(new_broker: NewBroker, tmp_path: Path) -> None:
    strict = TlsNode(tmp_path, asks_for_certificates=True)
    ours, theirs = strict.authority.sign("shop"), strict.stranger.sign("shop")
    with strict.node:
        with pytest.raises(SettingError, match="asks for a client certificate; set tls_cert and tls_key"):
            await opened(new_broker, strict.url, ca=strict.authority.ca)
        with pytest.raises(SettingError, match=r"does not accept our certificate .* check that tls_cert is in date"):
            await opened(new_broker, strict.url, ca=strict.authority.ca, cert=theirs.cert, key=theirs.key)
        await works(await opened(new_broker, strict.url, ca=strict.authority.ca, cert=ours.cert, key=ours.key))


async def test_a_certificate_of_nobody_the_broker_knows_is_a_refused_login(
    tls_node: TlsNode, new_broker: NewBroker
) -> None:
    own = tls_node.authority.sign("nobody")
    url = tls_node.url.replace("guest:guest@", "")

    with pytest.raises(BrokerRefusedLogin, match="check user, password and virtual host"):
        await opened(new_broker, url, ca=tls_node.authority.ca, cert=own.cert, key=own.key)


async def test_a_password_never_shows_in_what_tls_says(tls_node: TlsNode, new_broker: NewBroker) -> None:
    with pytest.raises(SettingError) as caught:
        await opened(new_broker, tls_node.url.replace("guest:guest", "guest:s3cret"))

    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"


# --- Files ------------------------------------------------------------------------------------------


async def test_files_that_are_of_no_use_are_named(tmp_path: Path, new_broker: NewBroker) -> None:
    authority = Authority(tmp_path, "ours")
    own, other = authority.sign("shop"), authority.sign("other")
    (tmp_path / "der").write_bytes(b"0\x82")
    locked = encrypted(own, b"pass", tmp_path / "locked.key")

    async def refused(said: str, **files: str) -> None:
        with pytest.raises(SettingError, match=said):
            await opened(new_broker, "amqps://localhost:1/", **files)

    await refused("tls_ca names '.*gone', which cannot be read: No such file", ca=str(tmp_path / "gone"))
    await refused("tls_ca names '.*der', which is not in PEM form", ca=str(tmp_path / "der"))
    await refused("tls_key is set and tls_cert is not", key=own.key)
    await refused("tls_cert .* and tls_key .* are no certificate and unencrypted key", cert=own.cert)
    await refused("are no certificate and unencrypted key", cert=own.cert, key=locked)
    await refused("tls_key '.*' does not belong to tls_cert", cert=own.cert, key=other.key)
