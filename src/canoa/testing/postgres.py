"""A private PostgreSQL server: own folder, own free port, loopback only, gone when it is no longer needed.

The folder is the server: a `PostgresNode` on the same folder finds the same port and data again. How it is made is in
`postgres_setup.py`, how its processes live and die in `processes.py`.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from canoa.errors import CanoaError
from canoa.testing import postgres_setup as setup
from canoa.testing.ports import LOOPBACK, free_port, wait_free
from canoa.testing.processes import ProcessGroup, children, is_alive, wait_gone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

START_TIMEOUT_S = 60.0  # 2 s on two idle cores; recovery after a kill on a loaded machine needs longer
_STOP_WITHIN_S = 30.0
_COMMAND_WITHIN_S = 60.0
_PORT_FREE_WITHIN_S = 2.0
_WORDS = 12  # lines quoted from PostgreSQL in an error


class PostgresFailed(CanoaError):
    """The server did not start, or a command to it failed. The message carries what PostgreSQL said."""


class PostgresNode:
    """One PostgreSQL server of your own, for a test run or a developer.

    Methods block, and may be called from any thread. As a context manager it starts, and stops at the end; it also
    ends when this process dies. `config` adds settings (`{"max_connections": "20"}`). Run by root, it hands `folder`
    over to an unprivileged user. Starting raises `PostgresMissing` when PostgreSQL is not installed.
    """

    def __init__(self, folder: Path, *, config: Mapping[str, str] = {}) -> None:
        self._layout = setup.Layout(folder.resolve())
        self._config = dict(config)
        self._port = _remembered_port(self._layout) or free_port()
        self._group: ProcessGroup | None = None

    # --- Where it is --------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        return self._layout.folder

    @property
    def port(self) -> int:
        return self._port

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{setup.LOGIN}:{setup.LOGIN}@{LOOPBACK}:{self.port}/{database}"

    @property
    def log_path(self) -> Path:
        return self._layout.output

    @property
    def pid(self) -> int | None:
        """The first process of the server, while it runs."""
        try:
            pid = int(self._layout.pid.read_text().splitlines()[0])
            # After a reboot the number may belong to anybody; our server works in its data folder.
            is_ours = Path(f"/proc/{pid}/cwd").readlink() == self._layout.data
        except (OSError, ValueError, IndexError):
            return None
        return pid if is_ours and is_alive(pid) else None

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    # --- Its life -----------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once clients can log in. Starting what runs already does nothing.

        Raises `PostgresFailed`, and leaves nothing running, when it ends early or takes longer than `timeout_s`.
        """
        if self.is_running:
            return
        programs, runner = setup.find_programs(), setup.Runner.choose()
        if not self._layout.data.exists():
            self._initialise(programs, runner)
        wait_free(self.port, purpose="postgresql", timeout_s=_PORT_FREE_WITHIN_S)
        self._layout.pid.unlink(missing_ok=True)  # of a killed server; its number may be a zombie's, or anybody's
        server = [str(programs / "postgres"), "-D", str(self._layout.data), *setup.settings(self.port, self._config)]
        self._group = ProcessGroup(
            runner.command(*server),
            env=setup.environment(),
            folder=self.folder,
            output=self._layout.output,
            detached=False,
        )
        try:
            self._wait_ready(self._group, timeout_s)
        except BaseException:  # also Ctrl-C: a half-started server helps nobody
            self.kill()
            raise

    def stop(self) -> None:
        """Let it end connections, write everything down and end. Stopping what does not run does nothing."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGINT)  # "fast": does not wait for clients to leave
            wait_gone(pid, timeout_s=_STOP_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of it, as a power cut would. Its folder stays, and it can be started again."""
        pid = self.pid
        # Each connection's process leads a group of its own, and holds on to the shared memory.
        family = [] if pid is None else [pid, *children(pid)]
        for member in family:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if self._group is not None:
            self._group.kill()
            self._group = None
        for member in family:
            wait_gone(member, timeout_s=_STOP_WITHIN_S)

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop, then start at the same address with the same data."""
        self.stop()
        self.start(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- What can be asked of it --------------------------------------------------------------------

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """What `psql` prints, without headings, or `PostgresFailed`."""
        told = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        where = ["--host", LOOPBACK, "--port", str(self.port), "--username", setup.LOGIN, "--dbname", database]
        return _run([str(setup.find_programs() / "psql"), *told, *where, "--command", statement], self.folder).strip()

    def add_database(self) -> str:
        """The name of an empty database that only you use."""
        name = f"test_{secrets.token_hex(6)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Under the feet of whoever is connected."""
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    # --- Inside -------------------------------------------------------------------------------------

    def _initialise(self, programs: Path, runner: setup.Runner) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        runner.own(self.folder)
        self._layout.port.write_text(str(self.port))
        self._layout.password.write_text(setup.LOGIN)
        command = [str(programs / "initdb"), "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8"]
        login = ["--username", setup.LOGIN, "--pwfile", str(self._layout.password), "--auth=scram-sha-256"]
        _run(runner.command(*command, *login, "-D", str(self._layout.data)), self.folder)

    def _wait_ready(self, group: ProcessGroup, timeout_s: float) -> None:
        ends_at = time.monotonic() + timeout_s
        while True:
            try:
                self.sql("SELECT 1")
                return
            except PostgresFailed:
                if group.has_ended:
                    raise PostgresFailed(f"PostgreSQL ended while starting; it said:\n{self._last_words()}") from None
                if time.monotonic() > ends_at:
                    raise PostgresFailed(
                        f"PostgreSQL was not ready after {timeout_s:g} s; it said:\n{self._last_words()}"
                    ) from None
            time.sleep(0.05)

    def _last_words(self) -> str:
        return "\n".join(self._layout.output.read_text(errors="replace").splitlines()[-_WORDS:])


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, env=setup.environment(), cwd=folder, capture_output=True, text=True, timeout=_COMMAND_WITHIN_S
    )
    if done.returncode != 0:
        raise PostgresFailed((done.stderr or done.stdout).strip())
    return done.stdout


def _remembered_port(layout: setup.Layout) -> int | None:
    try:
        return int(layout.port.read_text())
    except (OSError, ValueError):
        return None
