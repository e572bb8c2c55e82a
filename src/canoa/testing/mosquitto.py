"""A private Mosquitto: own folder, own free port, loopback only, gone when it is no longer needed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from typing import TYPE_CHECKING, Self

from canoa.errors import CanoaError
from canoa.testing.ports import LOOPBACK, free_port
from canoa.testing.processes import ProcessGroup, children, command_line, wait_gone

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

START_WITHIN_S = 20.0
STOP_WITHIN_S = 10.0
_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


class MosquittoMissing(CanoaError):
    """Mosquitto is not installed."""


class MosquittoFailed(CanoaError):
    """It did not start. The message carries what it said."""


class MosquittoNode:
    """One MQTT broker of your own, for a test run. Anybody on this machine may come in; what it has is kept in its
    folder over a restart, also over `kill`, as far as it was written. It ends when this process dies.
    `at_once`: messages under way to or from one client; as packaged there are 20. `saves_changes`: whatever changes is
    written at once, which is slow. False: as packaged, when it is stopped. `more`: further lines of its
    configuration."""

    def __init__(self, folder: Path, *, at_once: int = 1000, saves_changes: bool = True, more: str = "") -> None:
        self._at_once = at_once
        self._more = more
        self._saves_changes = saves_changes
        self._folder = folder.resolve()
        self.port = free_port()
        self._group: ProcessGroup | None = None

    @property
    def url(self) -> str:
        return f"mqtt://{LOOPBACK}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._group is not None and not self._group.has_ended

    def start(self) -> None:
        """Return once clients can connect. Starting what runs already does nothing."""
        if self.is_running:
            return
        program = shutil.which("mosquitto", path=_PATH)
        if program is None:
            raise MosquittoMissing("mosquitto is not installed; 'apt-get install mosquitto' installs it")
        config = self._folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} {LOOPBACK}\nallow_anonymous true\nuser root\nmax_queued_messages 100000\n"
            f"max_inflight_messages {self._at_once}\npersistence true\npersistence_location {self._folder}/\n"
            "set_tcp_nodelay true\n"
            + ("autosave_interval 1\nautosave_on_changes true\n" if self._saves_changes else "")
            + self._more
        )
        output = self._folder / "mosquitto.log"
        self._group = ProcessGroup(
            [program, "-c", str(config)], env={"PATH": _PATH}, folder=self._folder, output=output, detached=False
        )
        self._wait_ready(output)

    def stop(self) -> None:
        """As an operator would: it writes what it has."""
        if self._group is not None:
            for pid in children(self._group.id):
                if str(self._folder) in command_line(pid):
                    os.kill(pid, signal.SIGTERM)
                    wait_gone(pid, timeout_s=STOP_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self._group is not None:
            self._group.kill()
            self._group = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_ready(self, output: Path) -> None:
        ends_at = time.monotonic() + START_WITHIN_S
        while time.monotonic() < ends_at and self.is_running:
            try:
                socket.create_connection((LOOPBACK, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        said = output.read_text(errors="replace")[-2000:]
        self.kill()
        raise MosquittoFailed(f"mosquitto did not start within {START_WITHIN_S:g} s: {said}")
