"""A private RabbitMQ node: own folder, own free ports, loopback only, gone when it is no longer needed.

The folder is the node: a `RabbitNode` on the same folder finds the same ports and data again, also from another
process. What the node is told at start is in `rabbitmq_setup.py`, what of RabbitMQ it sees in
`rabbitmq_installation.py`; how its processes live and die in `processes.py`; virtual hosts in supply in `vhosts.py`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import msgspec

from canoa.errors import CanoaError
from canoa.testing import erl_call
from canoa.testing import rabbitmq_installation as installation
from canoa.testing import rabbitmq_setup as setup
from canoa.testing.ports import LOOPBACK, wait_free
from canoa.testing.processes import ProcessGroup, command_line, is_alive, kill_group, wait_gone
from canoa.testing.vhosts import VhostPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

START_TIMEOUT_S = 60.0  # 6 s on two idle cores; a loaded machine with several nodes needs far longer
_STOP_WITHIN_S = 30.0
_CTL_WITHIN_S = 60.0
_BOOTED_WITHIN_S = 20.0
_STILL_BOOTING = "requires the 'rabbit' app to be running"  # it takes connections a moment before it takes commands
_PORT_FREE_WITHIN_S = 2.0  # the last threads of a killed node may hold a port for a moment
_WORDS = 12  # lines quoted from RabbitMQ in an error
_LOG_PREFIX = re.compile(r"^\S+ \S+ \[error\] <[\d.]+> ?")
_DEFAULT_WATERMARK = "0.4"  # RabbitMQ's own default


class RabbitFailed(CanoaError):
    """The node did not start, or a command to it failed. The message carries what RabbitMQ said."""


class RabbitNode:
    """One RabbitMQ broker of your own, for a test run or a developer.

    Methods block, and may be called from any thread. As a context manager it starts, and stops at the end; it also
    ends when this process dies, unless it is `detached`. `schedulers=1` keeps an idle node smallest; None uses all
    cores. `config` adds lines to `rabbitmq.conf`, `erlang_args` are for the machine below it. Starting raises
    `RabbitMissing` when RabbitMQ is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        plugins: Sequence[str] = (),
        name: str | None = None,
        config: Mapping[str, str] = {},
        amqp_port: int | None = None,
        schedulers: int | None = None,
        erlang_args: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        self._layout = setup.Layout(folder.resolve())
        self._plugins = tuple(plugins)
        self._name = f"{name or 'canoa'}@localhost"
        self._config = dict(config)
        self._schedulers = schedulers
        self._erlang_args = tuple(erlang_args)
        self._detached = detached
        self._ports = _remembered_ports(self._layout, amqp_port) or setup.Ports.choose(amqp_port)
        self._group: ProcessGroup | None = None
        self._vhosts = VhostPool(self._evaluate)

    # --- Where it is --------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        return self._layout.folder

    @property
    def amqp_port(self) -> int:
        return self._ports.amqp

    def plugin_port(self, plugin: str) -> int | None:
        """Where the plugin listens, for `rabbitmq_management`, `rabbitmq_mqtt` and `rabbitmq_prometheus`."""
        return self._ports.plugins.get(plugin)

    @property
    def management_url(self) -> str | None:
        """The HTTP API and its pages (guest, guest), when the plugin is on."""
        port = self.plugin_port("rabbitmq_management")
        return f"http://{LOOPBACK}:{port}" if port else None

    def url(self, vhost: str = "/") -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.amqp_port}/{quote(vhost, safe='')}"

    @property
    def log_path(self) -> Path:
        return self._layout.logs / "rabbit.log"

    @property
    def pid(self) -> int | None:
        """The Erlang machine's process, while it runs."""
        try:
            pid = int(self._layout.pid.read_text())
        except (OSError, ValueError):
            return None
        # After a reboot the number may belong to anybody; a node of this folder has the folder in its arguments.
        return pid if is_alive(pid) and str(self._layout.home) in command_line(pid) else None

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    # --- Its life -----------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once clients can log in. Starting what runs already does nothing.

        Raises `RabbitFailed`, and leaves nothing behind, when it ends early or takes longer than `timeout_s`.
        """
        if self.is_running:
            return
        scripts = setup.find_scripts()
        setup.check_plugins(scripts, self._plugins)
        self._ports.listen_for(self._plugins)
        for purpose, port in self._ports.named().items():
            wait_free(port, purpose=purpose, timeout_s=_PORT_FREE_WITHIN_S)
        setup.write_files(self._layout, ports=self._ports, plugins=self._plugins, config=self._config)
        installation.remove(self._layout.installation)
        if not self._detached:  # that one outlives us: somebody may switch on plugins that nobody asked for now
            installation.make(self._layout.installation, scripts, self._plugins)
        self._layout.pid.unlink(missing_ok=True)
        self._group = ProcessGroup(
            [str(scripts / "rabbitmq-server")],
            helper=["epmd", "-port", str(self._ports.epmd), "-address", LOOPBACK],
            env=self._environment(),
            folder=self.folder,
            output=self._layout.output,
            detached=self._detached,
        )
        try:
            self._wait_ready(self._group, timeout_s)
        except BaseException:  # also Ctrl-C: a half-started broker helps nobody
            self.kill()
            raise

    def stop(self) -> None:
        """Let it close its files and end. Stopping what does not run does nothing."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            wait_gone(pid, timeout_s=_STOP_WITHIN_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, as a power cut would: nothing is flushed. Its folder stays, and it can be started again."""
        pid = self.pid
        if self._group is not None:
            self._group.kill()
            self._group = None
        if pid is not None:
            with suppress(ProcessLookupError):
                kill_group(os.getpgid(pid))
            wait_gone(pid, timeout_s=_STOP_WITHIN_S)

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

    def ctl(self, *args: str) -> str:
        """Run `rabbitmqctl` against this node and give its output, or raise `RabbitFailed`. About a second each."""
        ends_at = time.monotonic() + _BOOTED_WITHIN_S
        while (done := self._run_ctl(args)).returncode != 0:
            said = (done.stderr or done.stdout).strip()
            if _STILL_BOOTING not in said or time.monotonic() > ends_at:
                raise RabbitFailed(f"rabbitmqctl {' '.join(args)}: {said}")
        return done.stdout

    def add_vhost(self) -> str:
        """The name of an empty virtual host that only you use; `guest` may do everything in it."""
        return self._vhosts.take()

    def release_vhost(self, name: str) -> None:
        """You no longer need it: it is deleted together with others, later. Costs nothing now."""
        self._vhosts.release(name)

    def delete_vhost(self, name: str) -> None:
        """Delete it now, under the feet of whoever is connected."""
        self.ctl("delete_vhost", name)

    def set_memory_alarm(self, on: bool) -> None:
        """While on, the broker takes no message from anybody: publishers are told that they are blocked."""
        self.ctl("set_vm_memory_high_watermark", "0" if on else _DEFAULT_WATERMARK)

    # --- Inside -------------------------------------------------------------------------------------

    def _run_ctl(self, args: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = [str(setup.find_scripts() / "rabbitmqctl"), "--quiet", "--node", self._name, *args]
        return subprocess.run(
            command, env=self._environment(), cwd=self.folder, capture_output=True, text=True, timeout=_CTL_WITHIN_S
        )

    def _evaluate(self, expression: str) -> None:
        """Have the node do what ends in `ok`, however often."""
        if not erl_call.is_done(expression, node=self._name, env=self._environment(), folder=self.folder):
            self.ctl("eval", expression)

    def _environment(self) -> dict[str, str]:
        return setup.environment(
            self._layout,
            name=self._name,
            ports=self._ports,
            schedulers=self._schedulers,
            erlang_args=self._erlang_args,
        )

    def _wait_ready(self, group: ProcessGroup, timeout_s: float) -> None:
        ends_at = time.monotonic() + timeout_s
        while not (_speaks_amqp(self.amqp_port) and all(map(_accepts, self._ports.plugins.values()))):
            if group.has_ended:
                raise RabbitFailed(f"RabbitMQ ended while starting; it said:\n{self._last_words()}")
            if time.monotonic() > ends_at:
                raise RabbitFailed(f"RabbitMQ was not ready after {timeout_s:g} s; it said:\n{self._last_words()}")
            time.sleep(0.1)

    def _last_words(self) -> str:
        said = self._layout.output.read_text(errors="replace").splitlines()
        errors = [_LOG_PREFIX.sub("", line) for line in said if "[error]" in line]
        # The first errors name the reason; what follows is Erlang's account of everything that fell over it.
        return "\n".join(errors[:_WORDS]) or "\n".join(said[-_WORDS:])


def _remembered_ports(layout: setup.Layout, amqp_port: int | None) -> setup.Ports | None:
    try:
        ports = msgspec.json.decode(layout.ports.read_bytes(), type=setup.Ports)
    except (OSError, msgspec.MsgspecError):
        return None
    ports.amqp = amqp_port or ports.amqp
    return ports


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=2).close()
    except OSError:
        return False
    return True


def _speaks_amqp(port: int) -> bool:
    """Whether the listener answers our protocol header with a method frame (`connection.start`)."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as link:
            link.sendall(b"AMQP\x00\x00\x09\x01")
            return link.recv(1) == b"\x01"
    except OSError:
        return False
