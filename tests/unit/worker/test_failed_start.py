"""A worker that cannot start leaves nothing behind: its port is free for the next try."""

from __future__ import annotations

import socket

import pytest

from canoa import Canoa
from canoa.errors import SettingError
from canoa.testing.ports import LOOPBACK, free_port
from canoa.worker.settings import WorkerSettings


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
