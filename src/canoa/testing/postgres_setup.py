"""How a private PostgreSQL is made: where its programs are, as whom they run, what the server is told.

PostgreSQL refuses to run as root, so root hands it over to an unprivileged user of the system.
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import SettingError, WrongUse
from canoa.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEBIAN_VERSIONS: Final = Path("/usr/lib/postgresql")
USERS: Final = ("postgres", "nobody")
"""As whom it runs when we are root: the first that exists."""

LOGIN: Final = "canoa"
"""The superuser of a private server, and his password."""


class PostgresMissing(WrongUse):
    """PostgreSQL is not installed on this machine."""

    def __init__(self) -> None:
        super().__init__("PostgreSQL is not installed; install it with 'apt-get install postgresql' (as root)")


def find_programs() -> Path:
    """The folder of `initdb`, `postgres` and `psql`, the newest there is, or `PostgresMissing`."""
    found = [folder for folder in DEBIAN_VERSIONS.glob("*/bin") if (folder / "initdb").exists()]
    if found:
        return max(found, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0)
    initdb = shutil.which("initdb")
    if initdb is None:
        raise PostgresMissing
    return Path(initdb).resolve().parent


class Layout(msgspec.Struct, frozen=True):
    """The files of a server, all below one folder."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def port(self) -> Path:
        return self.folder / "port"

    @property
    def password(self) -> Path:
        return self.folder / "password"

    @property
    def pid(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def output(self) -> Path:
        return self.folder / "output.log"


class Runner(msgspec.Struct, frozen=True):
    """As whom the server's programs run: ourselves, or another user when we are root."""

    user: pwd.struct_passwd | None

    @classmethod
    def choose(cls) -> Runner:
        if os.geteuid() != 0:
            return cls(None)
        known = {user.pw_name: user for user in pwd.getpwall()}
        name = next((name for name in USERS if name in known), None)
        if name is None:
            raise SettingError(f"PostgreSQL refuses to run as root, and there is no user {' or '.join(USERS)} here")
        return cls(known[name])

    def command(self, *words: str) -> list[str]:
        if self.user is None:
            return list(words)
        ids = (f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}")
        return ["setpriv", *ids, "--clear-groups", "--", *words]

    def own(self, folder: Path) -> None:
        """Give him the folder. The way to it must be open to him too: pytest's folders are not, `/tmp` is."""
        if self.user is None:
            return
        os.chown(folder, self.user.pw_uid, self.user.pw_gid)
        closed = next((path for path in folder.parents if not path.stat().st_mode & 0o001), None)
        if closed is not None:
            raise SettingError(
                f"PostgreSQL runs as {self.user.pw_name!r} and cannot reach {folder}: {closed} is closed to others; "
                "use a folder of your own in /tmp"
            )


def settings(port: int, config: Mapping[str, str]) -> Sequence[str]:
    """For the server's command line. `config` has the last word."""
    told = {
        "listen_addresses": LOOPBACK,
        "port": str(port),
        "unix_socket_directories": "",  # nothing outside our folder
        "shared_buffers": "64MB",
        **config,
    }
    return [word for name, value in told.items() for word in ("-c", f"{name}={value}")]


def environment() -> dict[str, str]:
    """What the machine says about its own server is left out."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return kept | {"LC_ALL": "C.UTF-8", "PGPASSWORD": LOGIN}
