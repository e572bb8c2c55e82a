"""What a type checker sees of `app.sync`: types as asserted, and an error wherever one is ignored."""

from typing import Any, assert_type

from canoa import Canoa, Context
from canoa.client.sync import SyncHandle

app = Canoa("shop")


@app.action
async def resize(path: str, *, width: int = 100) -> str:
    return path


@app.action(timeout=None)
def plain(ctx: Context, number: int) -> float:
    return number / 2


plan = app.plan("thumbnails")
plan.step(resize, plan.input["path"])


def blocking() -> None:
    assert_type(app.sync.call(resize, "a.png", width=3), str)
    assert_type(app.sync.call(plain, 4), float)
    assert_type(app.sync.submit(resize, "a.png").result(timeout=3), str)
    assert_type(app.sync.submit(plain, 4), SyncHandle[float])
    assert_type(app.sync.submit_many(plain, [1]), list[SyncHandle[float]])
    assert_type(app.sync.call(resize.using(retry=1), "a.png"), str)

    assert_type(app.sync.submit(plan, path="a.png"), SyncHandle[Any])
    assert_type(app.sync.call(plan.using(idempotency_key="monday"), path="a.png"), Any)

    for text in app.sync.map(resize, ["a.png"]):
        assert_type(text, str)
    for outcome in app.sync.map(plain, [1], in_flight=5, return_errors=True):
        assert_type(outcome, float | Exception)

    app.sync.call(resize, 1)  # type: ignore[arg-type]
    app.sync.call(resize)  # type: ignore[call-arg]
    app.sync.submit(plain, "four")  # type: ignore[arg-type]
    app.sync.call(plain, 1, width=2)  # type: ignore[call-arg]
