"""How a private RabbitMQ node is told where everything is: programs, ports, files, environment.

Only values and files; `rabbitmq.py` starts and ends what they describe.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from canoa.errors import SettingError, WrongUse
from canoa.testing import rabbitmq_installation as installation
from canoa.testing.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Debian puts wrappers into PATH that insist on the user `rabbitmq` and its folders; the real scripts are here.
DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")

# Which setting gives a plugin its port. Other plugins are welcome, but get their ports through `config`.
_PLUGIN_LISTENERS: Mapping[str, Mapping[str, str]] = {
    "rabbitmq_management": {"management.tcp.ip": "{ip}", "management.tcp.port": "{port}"},
    "rabbitmq_mqtt": {"mqtt.listeners.tcp.default": "{ip}:{port}"},
    "rabbitmq_prometheus": {"prometheus.tcp.ip": "{ip}", "prometheus.tcp.port": "{port}"},
}
# Waiting schedulers would spin otherwise: 0.5 % of a core per idle node instead of several.
_QUIET_SCHEDULERS = "+sbwt none +sbwtdcpu none +sbwtdio none"
_DISTRIBUTION_ON_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"


class RabbitMissing(WrongUse):
    """RabbitMQ is not installed on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "rabbitmq-server is not installed; install it with 'apt-get install rabbitmq-server' (as root)"
        )


def find_scripts() -> Path:
    """The folder of `rabbitmq-server` and `rabbitmqctl`, or `RabbitMissing`."""
    if (DEBIAN_SCRIPTS / "rabbitmq-server").exists():
        return DEBIAN_SCRIPTS
    found = shutil.which("rabbitmq-server")
    if found is None or shutil.which("epmd") is None:
        raise RabbitMissing
    return Path(found).parent


class Ports(msgspec.Struct, kw_only=True):
    """Where a node listens. Chosen once per folder, so that a node that comes back is found at the same address."""

    amqp: int
    distribution: int
    epmd: int  # a name service of its own: nothing to share, nothing left behind
    plugins: dict[str, int] = {}

    @classmethod
    def choose(cls, amqp: int | None) -> Ports:
        return cls(amqp=amqp or free_port(), distribution=free_port(), epmd=free_port())

    def listen_for(self, plugins: Sequence[str]) -> None:
        """Exactly these plugins have ports from now on; those that had one keep it."""
        self.plugins = {name: self.plugins.get(name) or free_port() for name in plugins if name in _PLUGIN_LISTENERS}

    def named(self) -> dict[str, int]:
        return {"amqp": self.amqp, "distribution": self.distribution, "epmd": self.epmd, **self.plugins}


class Layout(msgspec.Struct, frozen=True):
    """The files of a node, all below one folder."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def ports(self) -> Path:
        return self.folder / "node.json"

    @property
    def pid(self) -> Path:
        return self.folder / "pid"

    @property
    def config(self) -> Path:
        return self.folder / "rabbitmq.conf"

    @property
    def enabled_plugins(self) -> Path:
        return self.folder / "enabled_plugins"

    @property
    def installation(self) -> Path:
        return self.folder / "installation"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def output(self) -> Path:
        return self.folder / "output.log"


def write_files(layout: Layout, *, ports: Ports, plugins: Sequence[str], config: Mapping[str, str]) -> None:
    """Everything the node reads when it starts. `config` has the last word over our own settings."""
    layout.home.mkdir(parents=True, exist_ok=True)
    layout.logs.mkdir(exist_ok=True)
    layout.ports.write_bytes(msgspec.json.encode(ports))
    layout.enabled_plugins.write_text(f"[{','.join(plugins)}].\n")
    settings = {"listeners.tcp.default": f"{LOOPBACK}:{ports.amqp}"}
    for plugin, port in ports.plugins.items():
        settings |= {key: value.format(ip=LOOPBACK, port=port) for key, value in _PLUGIN_LISTENERS[plugin].items()}
    settings |= config
    layout.config.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    cookie = layout.home / ".erlang.cookie"
    if not cookie.exists():
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20))


def check_plugins(scripts: Path, plugins: Sequence[str]) -> None:
    """Refuse a plugin this RabbitMQ does not have: the node itself would only fail to start, after seconds."""
    folder = (scripts / "rabbitmq-server").resolve().parent.parent / "plugins"
    present = {path.name.partition("-")[0] for path in folder.glob("rabbitmq_*")}
    for plugin in plugins:
        if present and plugin not in present:
            known = ", ".join(sorted(present))
            raise SettingError(f"this RabbitMQ has no plugin {plugin!r}; it has: {known}")


def environment(
    layout: Layout, *, name: str, ports: Ports, schedulers: int | None, erlang_args: Sequence[str]
) -> dict[str, str]:
    """For the server and for `rabbitmqctl` alike. What the machine says about its own broker is left out."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_", "NOTIFY_"))}
    fewer = f"+S {schedulers}:{schedulers} " if schedulers else ""
    return (
        kept
        | installation.environment(layout.installation)
        | {
            "HOME": str(layout.home),
            "LC_ALL": "C.UTF-8",
            "ERL_CRASH_DUMP_BYTES": "0",  # a failed start would spend seconds on a dump that nobody reads
            "ERL_EPMD_PORT": str(ports.epmd),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(layout.folder / "data"),
            "RABBITMQ_LOG_BASE": str(layout.logs),
            "RABBITMQ_LOGS": str(layout.logs / "rabbit.log"),
            "RABBITMQ_PID_FILE": str(layout.pid),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(layout.enabled_plugins),
            "RABBITMQ_CONFIG_FILE": str(layout.config),
            # Absent on purpose: the machine's own files under /etc/rabbitmq must not reach this node.
            "RABBITMQ_CONF_ENV_FILE": str(layout.folder / "none.env"),
            "RABBITMQ_CONFIG_FILES": str(layout.folder / "none.d"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(
                [f"{fewer}{_QUIET_SCHEDULERS} {_DISTRIBUTION_ON_LOOPBACK}", *erlang_args]
            ),
            "RABBITMQ_CTL_ERL_ARGS": f"+S 1:1 {_QUIET_SCHEDULERS} {_DISTRIBUTION_ON_LOOPBACK}",
            "RABBITMQ_CTL_DIST_PORT_MIN": "0",  # any free one: several commands may run at once
            "RABBITMQ_CTL_DIST_PORT_MAX": "0",
        }
    )
