"""The store: whether it can be reached, and whether its schema is one we know. Looked at, never changed: opening a
store brings its schema up to date, which is not a doctor's business.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from canoa.doctor import machine
from canoa.doctor.finding import Finding, ok, problem
from canoa.errors import CanoaError, StoreTooNew, StoreUnreachable
from canoa.settings import without_password
from canoa.store import revision

WITHIN_S: Final = 5.0
_SQLITE: Final = "sqlite:///"


async def look(url: str, *, default_url: str) -> tuple[list[Finding], float | None]:
    """What was found, and how far our clock is ahead of the store's, where that has one of its own."""
    if not url:
        path = _path(default_url)
        named = ok("store", f"none is named; `canoa up` and `canoa recorder` use {default_url}")
        return [named, *_place(path), *(_of_file(path) if path.exists() else ())], None
    if url.startswith(_SQLITE):
        return [*_of_file(_path(url)), *_place(_path(url))], None
    return await _of_server(url)


def _path(url: str) -> Path:
    return Path.cwd() / url.removeprefix(_SQLITE)


# --- SQLite -------------------------------------------------------------------------------------------


def _place(path: Path) -> list[Finding]:
    folder = next(each for each in path.parents if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return [problem("store", f"{folder} cannot be written to", "give this user the right, or name another store")]
    return [machine.disk(path.parent)]


def _of_file(path: Path) -> list[Finding]:
    if not path.exists():
        return [ok("store", f"{path} is not there yet; it is made when it is first used")]
    try:
        found = _revision_of_file(path)
    except sqlite3.Error as exc:
        remedy = "restore it from a backup, or name another store"
        return [problem("store", f"{path} cannot be read as a SQLite file: {exc}", remedy)]
    return [judge_revision(str(path), found)]


def _revision_of_file(path: Path) -> str | None:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=WITHIN_S)
    try:
        if connection.execute(revision.SELECT_TABLE_ON_SQLITE).fetchone() is None:
            return None
        (found,) = connection.execute(revision.SELECT).fetchone() or (None,)
        return found
    finally:
        connection.close()


# --- PostgreSQL ---------------------------------------------------------------------------------------


async def _of_server(url: str) -> tuple[list[Finding], float | None]:
    try:
        found, ahead_s = await _asked(url)
    except (CanoaError, OSError, TimeoutError, ValueError) as exc:
        reason = str(exc) or f"no answer within {WITHIN_S:g} s"
        remedy = "check that it runs, and user, password and database in the URL"
        return [problem("store", f"{without_password(url)} cannot be reached: {reason}", remedy)], None
    return [judge_revision(without_password(url), found)], ahead_s


async def _asked(url: str) -> tuple[str | None, float]:
    import asyncpg

    try:
        async with asyncio.timeout(WITHIN_S):
            connection = await asyncpg.connect(url)
            try:
                is_there = await connection.fetchval(revision.SELECT_TABLE_ON_POSTGRES)
                found = await connection.fetchval(revision.SELECT) if is_there else None
                began_s = time.time()
                theirs_s = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
                return found, (began_s + time.time()) / 2 - theirs_s
            finally:
                await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise StoreUnreachable(str(exc)) from exc


# --- Both ---------------------------------------------------------------------------------------------


def judge_revision(place: str, found: str | None) -> Finding:
    """None: a store without our tables."""
    if found is None:
        return ok("store", f"{place} is empty; its tables are made when it is first used")
    try:
        is_up_to_date = revision.is_current(found, place=place)
    except StoreTooNew as exc:
        return problem("store", str(exc))
    later = "" if is_up_to_date else ", older than ours: the next start brings it up to date"
    return ok("store", f"{place} answers; schema {found}{later}")
