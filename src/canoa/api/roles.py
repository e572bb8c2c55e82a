"""Which role an operation needs: one table, for the guard and for the document. Pure: no request, no token.

What is not in the table is for admins alone, so a route that somebody forgets to list here is shut, not open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.routing import compile_path

from canoa.vocabulary import Role

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/actuator/health"})
"""What a supervisor or a node asks, who has no token. They tell nothing about tasks."""

NODE_PATHS: Final = frozenset({"/sapparchi/nodes/register", "/sapparchi/results"})
"""What nodes that join over HTTP say. Open, too, unless `node_tokens` is set: a node as published has no token."""

OPERATIONS: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.VIEWER: (
        "GET /api/v1/tasks",
        "GET /api/v1/tasks/{task_id}",
        "GET /api/v1/tasks/{task_id}/result",
        "GET /api/v1/tasks/{task_id}/steps",
        "GET /api/v1/tasks/{task_id}/steps/{step}",
        "GET /api/v1/plans",
        "GET /api/v1/plans/{name}",
        "GET /api/v1/plans/{name}/steps/{step}/explanation",
        "GET /api/v1/nodes",
        "GET /api/v1/nodes/{node_id:path}",
        "GET /api/v1/catalogue",
        "GET /api/v1/catalogue/{action}/explanation",
        "GET /api/v1/dead",
        "GET /api/v1/dead/{task_id}",
        "GET /api/v1/actions",
        "GET /api/v1/events",
        "GET /metrics",
        "GET /openapi.json",
        "GET /docs",
    ),
    Role.OPERATOR: (
        "POST /api/v1/tasks",
        "POST /api/v1/tasks/batch",
        "POST /api/v1/tasks/{task_id}/cancel",
        "POST /api/v1/tasks/{task_id}/rerun",
        "PUT /api/v1/plans/{name}",
        "POST /api/v1/dead/redrive",
    ),
    Role.ADMIN: (
        "GET /api/v1/tokens",
        "POST /api/v1/tokens",
        "POST /api/v1/tokens/{name}/revoke",
    ),
    Role.NODE: tuple(f"POST {path}" for path in sorted(NODE_PATHS)),
}

_SUFFICES: Final[Mapping[Role, frozenset[Role]]] = {
    Role.VIEWER: frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.ADMIN}),
    Role.ADMIN: frozenset({Role.ADMIN}),
    Role.NODE: frozenset({Role.NODE, Role.OPERATOR, Role.ADMIN}),
}


def may(role: Role, needed: Role) -> bool:
    """Whether whoever has the one may do what needs the other."""
    return role in _SUFFICES[needed]


def needed(method: str, path: str) -> Role:
    return listed(method, path) or Role.ADMIN


def listed(method: str, path: str) -> Role | None:
    """None: it is not in the table. A path as the document writes it (`/tasks/{task_id}`) is one, too."""
    return next((role for pattern, role in _PATTERNS.get(method, ()) if pattern.match(path)), None)


def _patterns() -> dict[str, list[tuple[re.Pattern[str], Role]]]:
    """By method. Paths are read as the router reads them: what it takes for one of ours, so does this."""
    found: dict[str, list[tuple[re.Pattern[str], Role]]] = {}
    for role, operations in OPERATIONS.items():
        for method, path in map(str.split, operations):
            found.setdefault(method, []).append((compile_path(path)[0], role))
    return found


_PATTERNS: Final = _patterns()
