"""What cannot be an action is refused when it is defined, not when the first task comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from canoa import ActionDefinitionError, Canoa, UnknownAction, WrongUse


async def generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("define", "said"),
    [
        (lambda app: app.action(name="a b")(lambda: 1), "action 'a b' cannot be a name; use 1 to 80 letters"),
        (lambda app: app.action(lambda: 1), "action '<lambda>' cannot be a name"),
        (lambda app: app.action("resize"), r"'resize' is no function; a name is given as @app.action\(name=…\)"),
        (lambda app: app.action(timeout=0), "timeout is 0; use seconds above 0"),
        (lambda app: app.action(retry=-1), "retry is -1; use 0"),
        (lambda app: app.action(max_crashes=0), "max_crashes is 0; use 1"),
        (lambda app: app.action(rate="often"), "rate='often': use a number per s, m, h or d"),
        (lambda app: app.action(concurrency="{id.x}"), "use plain parameter names in braces"),
        (
            lambda app: app.action(name="x", concurrency="customer:{id}")(lambda number: 1),
            r"action 'shop.x': concurrency='customer:\{id\}' names 'id', which is not one of its parameters \(number\)",
        ),
        (lambda app: app.action(name="x", concurrency="{rest}")(lambda *rest: 1), r"names 'rest', .*\(it has none\)"),
        (lambda app: app.action(generator), "a generator cannot be an action; return a list, or submit parts"),
        (lambda app: app.action(cpu=True)(asyncio.sleep), "cpu=True runs in a process of its own; make it a plain def"),
        (lambda app: app.action(cpu=True, name="x")(lambda: 1), "finds it by name; define it at module level"),
    ],
)
def test_what_cannot_be_an_action_is_refused_when_it_is_defined(define: Any, said: str) -> None:
    app = Canoa("shop", broker="memory://")

    with pytest.raises((ActionDefinitionError, WrongUse), match=said):
        define(app)
    assert app.actions == {}


def test_two_actions_of_one_name_are_refused() -> None:
    app = Canoa("shop", broker="memory://")
    app.action(name="resize")(lambda: 1)

    with pytest.raises(
        ActionDefinitionError, match=r"action 'shop\.resize' is defined twice; give one of them another"
    ):
        app.action(name="resize")(lambda: 2)


def test_an_action_is_found_by_any_of_its_names() -> None:
    app = Canoa("shop", broker="memory://")
    action = app.action(name="resize")(lambda: 1)

    for name in ("resize", "shop.resize", "urn:sapparchi:Action:shop.resize"):
        assert app.find(name) is action
    with pytest.raises(UnknownAction, match=r"shop\.other"):
        app.find("other")
