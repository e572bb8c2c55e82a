"""The table of roles: whole, and as strict as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route
from tests.integration.api.paper_desk import PaperDesk

from canoa import Canoa
from canoa.api import roles
from canoa.api.app import Served, new_api
from canoa.api.readiness import Readiness
from canoa.recorder.token_desk import TokenDesk
from canoa.store.sqlite import SqliteStore
from canoa.vocabulary import Role

if TYPE_CHECKING:
    from pathlib import Path

VIEWER, OPERATOR, ADMIN, NODE = Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.NODE


@pytest.fixture
def routes(tmp_path: Path) -> list[BaseRoute]:
    """Of an API with everything."""
    app = Canoa("shop", broker="memory://")
    desk = PaperDesk(TokenDesk(SqliteStore(tmp_path / "canoa.db")))
    served = Served(app=app, readiness=Readiness(lambda: app.new_broker("test")), desk=desk)
    return list(new_api(served, hosts=["*"], token="a-token-of-good-length").routes)


def operations(routes: list[BaseRoute]) -> set[tuple[str, str]]:
    return {(method, route.path) for route in routes if isinstance(route, Route) for method in route.methods or ()}


def test_every_route_of_the_api_has_a_role_or_is_open(routes: list[BaseRoute]) -> None:
    assert all(isinstance(route, APIRoute) for route in routes)

    without = {each for each in operations(routes) if each[1] not in roles.OPEN_PATHS and roles.listed(*each) is None}

    assert without == set(), "say in api/roles.py which role they need"


def test_the_table_names_no_route_that_is_not_there(routes: list[BaseRoute]) -> None:
    listed = {tuple(each.split()) for role in roles.OPERATIONS if role is not NODE for each in roles.OPERATIONS[role]}

    assert listed - operations(routes) == set()


def test_a_route_that_changes_something_is_not_for_viewers() -> None:
    assert {each.split()[0] for each in roles.OPERATIONS[VIEWER]} == {"GET"}


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/api/v1/tasks/0192f0c1", VIEWER),
        ("GET", "/api/v1/nodes/a/b/c", VIEWER),
        ("POST", "/api/v1/tasks", OPERATOR),
        ("POST", "/api/v1/tasks/batch", OPERATOR),
        ("POST", "/api/v1/tasks/x/cancel", OPERATOR),
        ("PUT", "/api/v1/plans/power-factor", OPERATOR),
        ("GET", "/api/v1/tokens", ADMIN),
        ("POST", "/api/v1/tokens/ci/revoke", ADMIN),
        ("POST", "/sapparchi/nodes/register", NODE),
        ("POST", "/sapparchi/results", NODE),
    ],
)
def test_an_operation_needs_the_role_of_its_row(method: str, path: str, needed: Role) -> None:
    assert roles.needed(method, path) is needed


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nowhere"),
        ("DELETE", "/api/v1/tasks"),
        ("get", "/api/v1/tasks"),
        ("GET", "/api/v1/tasks/"),
        ("GET", "/api/v1/tokens/ci"),
        ("GET", "/sapparchi/results"),
        ("POST", "/sapparchi/other"),
        ("GET", "//api/v1/tasks"),
        ("GET", "/api/v1/tasks/x/result/../../../tokens"),
    ],
)
def test_what_is_not_in_the_table_is_for_admins_alone(method: str, path: str) -> None:
    assert roles.needed(method, path) is ADMIN


@pytest.mark.parametrize(
    ("role", "enough_for"),
    [
        (VIEWER, {VIEWER}),
        (OPERATOR, {VIEWER, OPERATOR, NODE}),
        (ADMIN, {VIEWER, OPERATOR, ADMIN, NODE}),
        (NODE, {NODE}),
    ],
)
def test_a_role_is_enough_for_what_is_below_it(role: Role, enough_for: set[Role]) -> None:
    assert {needed for needed in Role if roles.may(role, needed)} == enough_for
