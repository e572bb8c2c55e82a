"""The folder `.canoa` of a project: who runs there (`canoa up`), where that answers, and the token to show it."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import SettingError, StoreTaken

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path(".canoa")
LOCK: Final = FOLDER / "up.lock"
ADDRESS: Final = FOLDER / "address"
TOKEN: Final = FOLDER / "token"
JOURNAL: Final = FOLDER / "running"
CRASHES: Final = FOLDER / "crashes"
STORE_URL: Final = f"sqlite:///{FOLDER}/canoa.db"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs here, for the next one who wants to."""

    pid: int
    app: str
    since: str


@contextmanager
def held(app: str) -> Iterator[None]:
    """One `canoa up` per folder: two memory brokers on one store would each run everything. Let go by the system,
    also when we are killed."""
    _make()
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise StoreTaken(f"{_who()} runs in this folder ({Path.cwd()}); stop it, or use another folder") from exc
        lock.truncate(0)
        lock.write(msgspec.json.encode(Holder(pid=os.getpid(), app=app, since=time.strftime("%F %T"))).decode())
        lock.flush()
        ADDRESS.unlink(missing_ok=True)
        try:
            yield
        finally:
            ADDRESS.unlink(missing_ok=True)


def token() -> str:
    """The same after a restart. Readable by its owner alone."""
    _make()
    known = TOKEN.read_text().strip() if TOKEN.exists() else ""
    return known or _new_token()


def _new_token() -> str:
    """In one step, by a rename: killed in between, the next start makes another."""
    made, new = secrets.token_urlsafe(24), TOKEN.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(made)
    new.replace(TOKEN)
    return made


def default_store() -> str:
    """A file in the folder, which is made if need be."""
    _make()
    return STORE_URL


def announce(url: str) -> None:
    """Where commands of this folder find the API."""
    ADDRESS.write_text(url + "\n")


def is_held() -> bool:
    """Whether a `canoa up` runs here. A killed one leaves its address behind, where anybody may answer by now."""
    try:
        with LOCK.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _make() -> None:
    try:
        FOLDER.mkdir(exist_ok=True)
        FOLDER.chmod(0o700)  # arguments and results are in there
        ignore = FOLDER / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as exc:
        raise SettingError(
            f"cannot use the folder {Path.cwd() / FOLDER}: {exc.strerror}; run where you may write"
        ) from exc


def _who() -> str:
    try:
        holder = msgspec.json.decode(LOCK.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return "another `canoa up`"
    return f"`canoa up {holder.app}` (process {holder.pid}, since {holder.since})"
