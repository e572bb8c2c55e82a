"""What OpenAPI says about requests: the schemas of `asked.py`, made by msgspec, which also reads them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from canoa.api import roles

PREFIX: Final = "/api/v1"
"""Before the paths of all that may change with a version."""

_REFERENCE: Final = "#/components/schemas/{name}"

PROLOGUE: Final = """\
Submit tasks, see how they stand, fetch their results, look after dead letters.

Every request but the probes carries the header `Authorization: Bearer <token>`. A token has a role: a `viewer` looks,
an `operator` also submits, cancels, runs again and registers plans, an `admin` also makes tokens, a `node` only joins
and answers. Each operation says which one it needs. A task that was accepted (201) is
stored, and will end. Refusals have one shape, `{"error": {"type", "message"}}`; 429, 503 and 507 say when to try again
(`Retry-After`). Fields and parameters that are not listed here are refused. Times are UTC.
"""

TAGS: Final = [
    {"name": "tasks", "description": "Submitted runs of actions, from acceptance to result."},
    {"name": "dead letters", "description": "Tasks that ended badly and wait for a person."},
    {"name": "plans", "description": "Which actions a routed task runs, and which of them wait for which."},
    {"name": "nodes", "description": "Who runs the steps of routed tasks."},
    {"name": "wire", "description": "For nodes without a broker: they register here, and answer."},
    {"name": "actions", "description": "What can be submitted."},
    {"name": "events", "description": "What happens to tasks, as it happens."},
    {"name": "tokens", "description": "Who may use this API, and for what."},
    {"name": "probes", "description": "For supervisors and Prometheus."},
]


def in_path(name: str, description: str, example: str) -> dict[str, Any]:
    """A parameter that is part of the path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "minLength": 1},
        "example": example,
    }


_TASK_ID: Final = in_path("task_id", "The id that submitting gave.", "0192f0c1a7b27c3e9d5e4f60718293a4")

NO_TOKEN: Final[dict[str, Any]] = {"security": []}


TOKEN_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of a role: the one of the settings, which is an admin's, or one that `canoa token` made.",
}


def tell_roles(document: dict[str, Any], open_paths: frozenset[str]) -> None:
    """Which role each operation needs, as `roles.py` has it."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path in open_paths:
                operation["security"] = []
                continue
            role = roles.needed(method.upper(), path)
            operation["security"] = [{"token": [role.value]}]
            said = operation.get("description", "")
            operation["description"] = f"{said}\n\nNeeds the role `{role}`.".strip()


def schemas(types: list[Any]) -> dict[str, Any]:
    """The components that the types need."""
    return msgspec.json.schema_components(types, ref_template=_REFERENCE)[1]


def reference_to(type_: type) -> str:
    """Where its schema is in the document."""
    return _REFERENCE.format(name=type_.__name__)


def takes(type_: Any, *, examples: dict[str, Any]) -> dict[str, Any]:
    """For `openapi_extra`: a JSON body of that type."""
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=_REFERENCE)
    named = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": schema, "examples": named}}
    return {"requestBody": {"required": True, "content": content}}


def asks(type_: Any) -> dict[str, Any]:
    """For `openapi_extra`: query parameters, one per field."""
    (reference,), components = msgspec.json.schema_components([type_], ref_template="{name}")
    fields = components[reference["$ref"]]["properties"]
    return {"parameters": [_parameter(name, _inlined(schema, components)) for name, schema in fields.items()]}


def of_task(type_: Any = None) -> dict[str, Any]:
    """For `openapi_extra`: the task's id in the path, and query parameters of that type."""
    return {"parameters": [_TASK_ID, *(asks(type_)["parameters"] if type_ else ())]}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = dict(schema)
    description = described.pop("description", "")
    return {"name": name, "in": "query", "required": False, "description": description, "schema": described}


def _inlined(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Without references, which only enums make here."""
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**components[schema["$ref"]], **own} if "$ref" in schema else own
