"""A PostgreSQL store is looked at and left as it is: reached, its schema told, its clock compared."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import asyncpg

from canoa.doctor.finding import Finding, Verdict
from canoa.doctor.store import look
from canoa.store.opening import new_store
from canoa.store.revision import HEAD
from canoa.testing.ports import LOOPBACK


async def told(url: str) -> tuple[Finding, float | None]:
    (finding,), ahead_s = await look(url, default_url="")
    return finding, ahead_s


async def make(url: str) -> None:
    store = new_store(url)
    await store.open()
    await store.aclose()


async def sql(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_an_empty_database_stays_empty(postgres_url: str) -> None:
    finding, ahead_s = await told(postgres_url)

    assert finding.verdict is Verdict.OK
    assert "is empty; its tables are made when it is first used" in finding.found
    assert ahead_s is not None
    assert abs(ahead_s) < 1
    assert await sql(postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


async def test_a_store_of_this_version_answers_with_its_schema(postgres_url: str) -> None:
    await make(postgres_url)

    finding, _ = await told(postgres_url)

    assert (finding.verdict, f"answers; schema {HEAD}" in finding.found) == (Verdict.OK, True)


async def test_a_store_of_a_newer_version_is_a_problem(postgres_url: str) -> None:
    await make(postgres_url)
    await sql(postgres_url, "UPDATE canoa_schema SET version_num = '9999'")

    finding, _ = await told(postgres_url)

    assert (finding.verdict, "has schema 9999" in finding.found) == (Verdict.PROBLEM, True)


async def test_a_wrong_database_or_user_is_a_problem_without_the_password(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    wrong = parts._replace(path="/nowhere", netloc=f"nobody:s3cret@{parts.netloc.rpartition('@')[2]}").geturl()

    finding, ahead_s = await told(wrong)

    assert (finding.verdict, ahead_s) == (Verdict.PROBLEM, None)
    assert "cannot be reached" in finding.found
    assert "s3cret" not in f"{finding}"


async def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server((LOOPBACK, 0)) as never_accepts:
        async with asyncio.timeout(10):
            finding, _ = await told(f"postgresql://u:p@{LOOPBACK}:{never_accepts.getsockname()[1]}/db")

    assert "no answer within 5 s" in finding.found
