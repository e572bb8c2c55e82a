"""A worker that cannot start leaves nothing behind: its port is free for the next try."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.integration.routed.paper_uplink import PaperUplink

from canoa import Canoa
from canoa.errors import SettingError
from canoa.testing.ports import LOOPBACK, free_port
from canoa.vocabulary import HTTP, MQTT
from canoa.worker import worker as worker_module
from canoa.worker.settings import WorkerSettings
from canoa.worker.worker import Worker


async def test_the_port_of_a_worker_that_could_not_start_is_free_again() -> None:
    port = free_port()
    app = Canoa("shop", broker=f"amqp://{LOOPBACK}:9/")

    @app.action(rate="10/m")  # over all workers, which needs a store
    async def resize(path: str) -> str:
        return path

    settings = WorkerSettings(http=f"{LOOPBACK}:{port}", manager_url=f"http://{LOOPBACK}:9")
    with pytest.raises(SettingError) as failed:
        async with app.worker_with(settings):
            pass

    socket.create_server((LOOPBACK, port)).close()
    assert "store" in str(failed.value)  # whose traceback still holds the worker
    await app.aclose()


def open_files() -> list[str]:
    return sorted(str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


async def test_a_worker_that_could_not_even_be_made_has_neither_a_port_nor_a_file_open(tmp_path: Path) -> None:
    port, journal = free_port(), tmp_path / "journal"
    app = Canoa("shop", broker="memory://")
    app.action(name="one")(lambda: 1)
    settings = WorkerSettings(
        http=f"{LOOPBACK}:{port}",
        manager_url=f"http://{LOOPBACK}:9",
        mqtt="mqtt://",
        journal=str(journal),
    )

    with pytest.raises(SettingError) as failed:
        Worker(app, settings)

    socket.create_server((LOOPBACK, port)).close()
    assert not [each for each in open_files() if each.startswith(str(tmp_path))]
    assert "mqtt" in str(failed.value)
    await app.aclose()


async def test_an_uplink_that_cannot_even_be_closed_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(PaperUplink):
        async def start(self, _: object) -> None:
            raise OSError("no start")

        async def aclose(self) -> None:
            raise OSError("no end")

    uplinks = PaperUplink(MQTT), Broken(HTTP), PaperUplink(HTTP)
    monkeypatch.setattr(worker_module, "new_uplinks", lambda *_: uplinks)
    app = Canoa("shop", broker="memory://")
    app.action(name="one")(lambda: 1)
    worker = Worker(app, WorkerSettings())

    with pytest.raises(OSError, match="no end"):
        await worker.start()

    assert [each.is_open for each in uplinks] == [False, True, False]
    assert not worker._broker.is_linked
    await app.aclose()
