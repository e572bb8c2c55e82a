"""What a program asks wrongly is refused with the value and the remedy; nothing is sent, or the caller is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.pool.pool import dead_letter

from canoa import ArgumentsRefused, Canoa, PayloadTooLarge, TaskRefused, UnknownAction, WrongUse
from canoa.errors import QueueMissing

if TYPE_CHECKING:
    from canoa.broker.port import Broker


async def test_an_action_nobody_offers_is_refused_with_how_to_offer_it(app: Canoa) -> None:
    @app.action
    async def resize(path: str) -> str:
        return path

    remedy = (
        r"no broker is named, .*: open `app\.worker\(\)` here, or set CANOA_BROKER$"
        if app.settings.is_memory
        else r"start one \(`canoa worker module:app`\), or declare its queue first \(`canoa actions declare .*`\)$"
    )
    said = rf"^no worker has ever offered action 'shop.resize' on this broker; {remedy}"
    with pytest.raises(UnknownAction, match=said):
        await resize.submit("a.png")
    with pytest.raises(UnknownAction, match=said):
        await resize.call("a.png")
    with pytest.raises(UnknownAction, match=said):
        await resize.submit_many(["a.png", "b.png"])
    with pytest.raises(UnknownAction, match=r"'other\.thing'"):
        await app.submit_raw("other.thing", b"{}")
    with pytest.raises(QueueMissing):
        await app.depth("shop.resize")


@pytest.mark.parametrize("name", ["resize", "shop.", "a..c", "shop.re size"])
async def test_a_name_that_is_none_is_refused(memory_app: Canoa, name: str) -> None:
    with pytest.raises(WrongUse, match=r"is not an action's name; write <app>\.<action>"):
        await memory_app.submit_raw(name, b"{}")


async def test_arguments_of_a_wrong_type_are_refused_before_anything_is_sent(app: Canoa) -> None:
    @app.action
    async def resize(path: str, *, width: int = 100) -> str:
        return path

    async with app.worker():
        pass

    said = r"shop.resize: Expected `int`, got `str`, at `\$.width`; it takes \(path: str, \*, width: int = 100\)"
    with pytest.raises(ArgumentsRefused, match=said):
        await resize.submit("a.png", width="wide")  # type: ignore[arg-type]
    with pytest.raises(ArgumentsRefused, match="Missing required argument 'path'"):
        await resize.call()  # type: ignore[call-arg]
    assert (await app.depth("shop.resize")).messages == 0


async def test_arguments_over_the_limit_are_refused_before_anything_is_sent(app_broker: str) -> None:
    app = Canoa("shop", broker=app_broker, max_payload_bytes=1000)

    @app.action
    async def store(text: str) -> int:
        return len(text)

    async with app, app.worker():
        said = "arguments of shop.store is 2,011 bytes, over the limit of 1,000; send a reference .* CANOA_MAX_PAYLOAD"
        with pytest.raises(PayloadTooLarge, match=said):
            await store.submit("x" * 2000)
        assert await store.call("x" * 900) == 900


async def test_a_result_over_the_limit_is_told_to_the_caller(app_broker: str) -> None:
    app = Canoa("shop", broker=app_broker, max_payload_bytes=1000)

    @app.action(retry=3)
    async def repeat(count: int) -> str:
        return "x" * count

    async with app, app.worker():
        said = "the result of shop.repeat is 2,002 bytes, over the limit of 1,000; send a reference"
        with pytest.raises(TaskRefused, match=said):
            await repeat.call(2000)
        assert len(await repeat.call(900)) == 900


@pytest.mark.parametrize("value", [object(), {1, "a", object()}, float("nan"), "\ud800", lambda: 1])
async def test_a_result_that_cannot_be_encoded_is_told_to_the_caller_and_not_tried_again(
    memory_app: Canoa, value: Any
) -> None:
    runs: list[int] = []

    @memory_app.action(retry=3)
    async def gives() -> Any:
        runs.append(1)
        return value

    async with memory_app.worker():
        with pytest.raises(TaskRefused, match=f"a value of type '{type(value).__qualname__}'.*(use|send) "):
            await gives.call()

    assert runs == [1]


async def test_a_result_of_another_type_than_promised_is_told_to_the_caller(memory_app: Canoa) -> None:
    @memory_app.action
    async def lies() -> int:
        return "one"  # type: ignore[return-value]

    async with memory_app.worker():
        with pytest.raises(TaskRefused, match=r"answered with a result that cannot be used: Expected `int`, got `str`"):
            await lies.call()


async def test_a_result_that_nobody_waits_for_but_cannot_be_encoded_is_a_dead_letter(
    memory_app: Canoa, memory_raw: Broker
) -> None:
    @memory_app.action
    async def gives() -> Any:
        return object()

    async with memory_app.worker():
        await gives.using(result="none").submit()
        letter = await dead_letter(memory_raw)

    assert letter.headers["canoa-reason"] == "refused"
    assert "a value of type 'object' cannot be sent" in str(letter.headers["canoa-error"])
