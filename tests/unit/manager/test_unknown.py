"""Who asks a manager for an action that no node ever offered, or for a plan that nobody registered, is told what helps
there.
"""

from __future__ import annotations

import pytest

from canoa.manager.unknown import COMPARED, unknown_action, unknown_plan
from canoa.vocabulary import ActionName


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["shop.resize", "shop.price", "plant.inspect"], "did you mean shop.resize? `canoa nodes` shows"),
        (["shop.resized", "shop.resizer"], "did you mean shop.resizer or shop.resized? `canoa nodes` shows"),
        (["plant.read", "plant.inspect"], "nodes offer plant.inspect, plant.read; `canoa nodes` shows"),
        ([f"p.a{at}" for at in range(9)], "nodes offer p.a0, p.a1, p.a2, p.a3, p.a4, …; `canoa nodes` shows"),
        ([], "no node has registered; `canoa nodes` shows"),
    ],
)
def test_the_nearest_names_are_told_or_some_that_there_are(known: list[str], hint: str) -> None:
    error = unknown_action(ActionName("shop.resise"), [ActionName(each) for each in known])

    assert str(error).startswith(f"no node has ever offered action 'shop.resise'; {hint} who offers what")
    assert str(error).endswith("`canoa worker module:app` starts a node")
    assert "declare" not in str(error)
    assert error.action == "shop.resise"


def test_a_name_of_any_length_among_very_many_is_answered_soon() -> None:
    many = [ActionName(f"shop.action-{at}") for at in range(100 * COMPARED)]

    assert len(str(unknown_action(ActionName("shop." + "x" * 10_000), many))) < 1_000


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["power-factor", "nightly"], " did you mean power-factor?"),
        (["nightly", "billing"], " there are billing, nightly;"),
        ([], ""),
    ],
)
def test_the_nearest_plans_are_told_or_some_that_there_are(known: list[str], hint: str) -> None:
    error = unknown_plan("powr-factor", known)

    assert str(error) == (f"no plan 'powr-factor' is registered here;{hint} `canoa plans register plan.yaml` adds one")
    assert error.name == "powr-factor"
