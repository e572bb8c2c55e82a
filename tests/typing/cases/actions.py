"""What a type checker sees of actions: types as asserted, and an error wherever one is ignored."""

from datetime import UTC, datetime
from typing import assert_type

from canoa import Canoa, Concurrency, Context, Handle, Rate

app = Canoa("shop")


@app.action(timeout=5, retry=3)
async def resize(path: str, *, width: int = 100) -> str:
    return path


@app.action
async def bare(path: str) -> bytes:
    return path.encode()


@app.action()
def plain(number: int) -> float:
    return number / 2


@app.action
def bare_plain(number: int) -> list[int]:
    return [number]


@app.action(rate="100/m", concurrency=Concurrency("charge:{number}", limit=2))
async def charge(number: int) -> int:
    return number


@app.action(rate=Rate("10/s", burst=20, scope="worker"), concurrency="page:{path}")
def fetch(path: str) -> str:
    return path


@app.action(cpu=True)
def computes(ctx: Context, number: int, *, rounds: int = 1) -> dict[str, int]:
    return {"number": number * rounds}


@app.action
async def with_context(ctx: Context, path: str) -> int:
    return ctx.attempt


async def submitting() -> None:
    assert_type(await resize.submit("a.png", width=80), Handle[str])
    assert_type(await bare.submit("a.png"), Handle[bytes])
    assert_type(await plain.submit(1), Handle[float])
    assert_type(await computes.submit(1, rounds=2), Handle[dict[str, int]])
    assert_type(await (await with_context.submit("a")).result(timeout=5), int)
    await resize.submit(1)  # type: ignore[arg-type]
    await resize.submit()  # type: ignore[call-arg]
    await resize.submit("a.png", 80)  # type: ignore[call-arg]
    await resize.submit("a.png", widht=80)  # type: ignore[call-arg]
    await with_context.submit(1)  # type: ignore[arg-type]
    await computes.submit(1, 2)  # type: ignore[call-arg]


async def calling() -> None:
    assert_type(await resize.call("a.png"), str)
    assert_type(await bare_plain.call(1), list[int])
    assert_type(await resize("a.png"), str)
    assert_type(plain(4), float)
    assert_type(computes(4), dict[str, int])
    assert_type(await with_context("a"), int)
    await resize.call(width="a")  # type: ignore[call-arg, arg-type]
    plain("four")  # type: ignore[arg-type]
    resize(3)  # type: ignore[arg-type, unused-coroutine]


async def using_options() -> None:
    assert_type(await resize.using(queue_timeout=5, result="none").submit("a.png"), Handle[str])
    assert_type(await resize.using(retry=1).call("a.png"), str)
    await resize.using(retry=1).submit(1)  # type: ignore[arg-type]
    resize.using(result="later")  # type: ignore[arg-type]
    assert_type(await resize.using(after=60).submit("a.png"), Handle[str])
    assert_type(await resize.using(at=datetime.now(UTC)).submit("a.png"), Handle[str])
    assert_type(await charge.submit(1), Handle[int])
    assert_type(await fetch.submit("a"), Handle[str])
    Rate("10/s", scope="node")  # type: ignore[arg-type]
    resize.using(at="tomorrow")  # type: ignore[arg-type]
    resize.using(timeout="5")  # type: ignore[arg-type]


async def mapping() -> None:
    async for text in resize.map(["a.png", resize.args("b.png", width=3)]):
        assert_type(text, str)
    async for outcome in plain.map([1], return_errors=True):
        assert_type(outcome, float | Exception)
    async for inner in bare_plain.using(retry=1).map([1]):
        assert_type(inner, list[int])
    resize.args(3)  # type: ignore[arg-type]
    assert_type(await plain.submit_many([1, 2]), list[Handle[float]])
