"""A shell for each test, with a broker of its own where the test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.acceptance.kept_depot import Rabbit
from tests.acceptance.shell import CANOA, DEPOT, ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from canoa.testing import RabbitNode


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Shell]:
    """No broker is named."""
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def online(tmp_path: Path, rabbit_url: str) -> Iterator[Shell]:
    """CANOA_BROKER names an empty virtual host."""
    shell = Shell(tmp_path, env={"CANOA_BROKER": rabbit_url})
    yield shell
    shell.close()


@pytest.fixture
def rabbit(rabbit_node: RabbitNode, rabbit_url: str) -> Rabbit:
    """An empty virtual host, and the node that has it."""
    return Rabbit(rabbit_node, rabbit_url)


@pytest.fixture(
    scope="module", params=["through the API", pytest.param("through the broker", marks=pytest.mark.rabbitmq)]
)
def keeping(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell where the depot's tasks are kept: by `canoa up` in its folder, or by a recorder beside a worker."""
    folder = tmp_path_factory.mktemp("keeping")
    shell = Shell(folder, folder=folder)
    shell.env["PYTHONPATH"] += f":{ROOT}"
    if request.param == "through the API":
        shell.start(str(CANOA), "up", DEPOT, "--port", "0").wait_logged("Ctrl-C")
        yield shell
        shell.close()
        return
    node: RabbitNode = request.getfixturevalue("rabbit_node")
    vhost = node.add_vhost()
    shell.env["CANOA_BROKER"] = node.url(vhost)
    shell.start(str(CANOA), "recorder").wait_logged("recorder_ready")
    shell.start_worker()
    yield shell
    shell.close()
    node.release_vhost(vhost)
