"""Fixtures for pytest: a RabbitMQ and a PostgreSQL per run, a virtual host or database per test, proxies that fail.

Switched on by `pytest_plugins = ["canoa.testing.pytest_plugin"]` in a top-level `conftest.py`. A missing server is a
failure, never a skip. Tests that use one carry the marker `rabbitmq` or `postgres`, so `-m "not rabbitmq"` leaves them
out.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from canoa.testing.mosquitto import MosquittoNode
from canoa.testing.postgres import PostgresNode
from canoa.testing.proxy import TcpProxy
from canoa.testing.rabbitmq import RabbitNode

ProxyFactory: TypeAlias = Callable[[str], Awaitable[TcpProxy]]
"""Give it a broker's URL, get a proxy to that broker: `proxy.via(url)` is the URL that leads through it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rabbitmq: needs a RabbitMQ node, which the test run starts by itself")
    config.addinivalue_line("markers", "mosquitto: needs a Mosquitto, which the test starts by itself")
    config.addinivalue_line("markers", "postgres: needs a PostgreSQL server, which the test run starts by itself")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "rabbit_node" in getattr(item, "fixturenames", ()):
            item.add_marker("rabbitmq")
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker("mosquitto")
        if "postgres_node" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")


@pytest.fixture(scope="session")
def rabbit_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """One private RabbitMQ for the whole run. A test may kill, restart or block it: put it right again."""
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq"), schedulers=1) as node:
        yield node


@pytest.fixture
def rabbit_url(rabbit_node: RabbitNode) -> Iterator[str]:
    """The URL of an empty virtual host that only this test uses."""
    rabbit_node.start()  # the test before may have failed between kill and restart
    vhost = rabbit_node.add_vhost()
    yield rabbit_node.url(vhost)
    rabbit_node.release_vhost(vhost)


@pytest.fixture(scope="session")
def postgres_node() -> Iterator[PostgresNode]:
    """One private PostgreSQL for the whole run. A test may kill or restart it: put it right again."""
    # Not below pytest's own folder: root's is closed to the user as whom the server then runs.
    with tempfile.TemporaryDirectory(prefix="canoa-postgres-") as folder:
        Path(folder).chmod(0o755)
        with PostgresNode(Path(folder)) as node:
            yield node


@pytest.fixture
def postgres_url(postgres_node: PostgresNode) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    postgres_node.start()  # the test before may have failed between kill and restart
    database = postgres_node.add_database()
    yield postgres_node.url(database)
    postgres_node.drop_database(database)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoNode]:
    """A private Mosquitto, of this test alone."""
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    with MosquittoNode(folder) as node:
        yield node


@pytest_asyncio.fixture
async def tcp_proxy() -> AsyncIterator[ProxyFactory]:
    """Makes proxies that end with the test: `proxy = await tcp_proxy(rabbit_url)`."""
    async with AsyncExitStack() as proxies:

        async def start(url: str) -> TcpProxy:
            parts = urlsplit(url)
            if parts.hostname is None or parts.port is None:
                raise ValueError(f"a proxy needs a URL with host and port, not {parts.netloc!r}")
            return await proxies.enter_async_context(TcpProxy(parts.hostname, parts.port))

        yield start
