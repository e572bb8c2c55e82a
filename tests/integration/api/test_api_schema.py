"""The API keeps to its own document: schemathesis tries what the document allows, and what it does not, in every role.

Every check it has, over a real desk. What a role may not do must be refused, whatever is sent, and change nothing. The
event stream is left out, since it has no end to wait for.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.api.world import TOKEN, listening
from tests.integration.keep.keeping import eventually

from canoa import Canoa
from canoa.api import roles
from canoa.manager.hosting import hosting
from canoa.vocabulary import Role

if TYPE_CHECKING:
    import httpx

EVERYTHING = ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "6"]
AT_RANDOM = ["--phases", "fuzzing,stateful", "--max-examples", "6"]
TRIED = {Role.ADMIN: EVERYTHING, Role.OPERATOR: AT_RANDOM, Role.VIEWER: AT_RANDOM, Role.NODE: AT_RANDOM}
"""An admin may do all, so he gets the nine hundred fixed cases, too. Of the others most would tell the same again."""

AT_LEAST = {Role.ADMIN: 500, Role.OPERATOR: 100, Role.VIEWER: 100, Role.NODE: 100}

# What the document cannot say: which arguments an action takes, which cursors are ours, which plans can run and how
# long a name may be. So a request that fits the document may still be refused there.
NOT_SAID = ["submit", "submit_batch", "list_tasks", "list_dead", "register_plan", "rerun", "get_step", "explain_step"]

PLAN = {"plan": "thumbnails", "steps": {"resize": {"action": "shop.resize", "with": {"path": "$input.path"}}}}
TASKS = "/api/v1/tasks"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", TRIED)
async def test_the_api_keeps_to_its_document_whatever_it_is_sent(tmp_path: Path, role: Role) -> None:
    app = Canoa("shop", broker="memory://")

    @app.action()
    async def resize(path: str, *, width: int = 100) -> str:
        return f"{path}-{width}"

    @app.action()
    async def fail(reason: str = "") -> None:
        raise ValueError(reason)

    async with (
        hosting(app, f"sqlite:///{tmp_path}/canoa.db") as hosted,
        app.worker(drain_s=5),
        listening(app, hosted.desk) as admin,
    ):
        await admin.put("/api/v1/plans/thumbnails", json=PLAN)
        for _ in range(5):  # dead letters and routed tasks, to be found
            await admin.post(TASKS, json={"action": "shop.fail"})
            await admin.post(TASKS, json={"plan": "thumbnails", "input": {"path": "a.png"}})
        await eventually(lambda: all_have_ended(admin))
        secret = TOKEN if role is Role.ADMIN else await new_secret(admin, role)  # an admin's own could be revoked
        before = await what_only_others_may_change(admin, role)
        code, said = await tried(admin, role, secret, tmp_path)
        after = await what_only_others_may_change(admin, role)
        await app.aclose()

    assert code == 0, said
    assert after == before
    generated = re.search(r"(\d+) generated", said)
    assert generated is not None, said
    assert int(generated[1]) > AT_LEAST[role], said


async def all_have_ended(admin: httpx.AsyncClient) -> bool:
    open_tasks = [(await admin.get(TASKS, params={"state": state})).json()["tasks"] for state in ("waiting", "running")]
    return open_tasks == [[], []]


async def new_secret(admin: httpx.AsyncClient, role: Role) -> str:
    made = await admin.post("/api/v1/tokens", json={"name": f"of-a-{role}", "role": role})
    secret: str = made.json()["secret"]
    return secret


async def what_only_others_may_change(admin: httpx.AsyncClient, role: Role) -> dict[str, Any]:
    kept = {
        Role.ADMIN: [],
        Role.OPERATOR: ["/api/v1/tokens"],
        Role.VIEWER: ["/api/v1/tokens", "/api/v1/plans", "/api/v1/dead", f"{TASKS}?limit=500"],
        Role.NODE: ["/api/v1/tokens", "/api/v1/plans", "/api/v1/dead", f"{TASKS}?limit=500"],
    }
    found = {path: (await admin.get(path)).json() for path in kept[role]}
    for token in found.get("/api/v1/tokens", []):
        token.pop("used_at")
    return found


OF_THE_WIRE = ["register_node", "take_result"]
"""The published wire takes more than anybody should send, and less than a schema can say: an id or an address."""


async def configuration(admin: httpx.AsyncClient, role: Role) -> str:
    """What may be answered to a request that fits the document, by operation."""
    paths = (await admin.get("/openapi.json")).json()["paths"]
    needed = {
        operation["operationId"]: Role(operation["security"][0]["token"][0])
        for methods in paths.values()
        for operation in methods.values()
        if operation["security"]
    }
    refused = sorted(each for each, least in needed.items() if not roles.may(role, least))
    lenient = sorted(set(NOT_SAID) - set(refused))
    return "\n".join(
        [
            *(_answered(refused, ["401", "403"], ["401", "403"]) if refused else []),
            *_answered(lenient, ["2xx", "400", "401", "404", "422"], None),
            *_answered(
                OF_THE_WIRE,
                ["2xx", "400", "409", "413", "422", "503"],
                ["2xx", "400", "401", "409", "413", "422", "503"],
            ),
        ]
    )


def _answered(operations: list[str], to_sound: list[str], to_unsound: list[str] | None) -> list[str]:
    if not operations:
        return []
    unsound = [f"negative_data_rejection.expected-statuses = {to_unsound}"] if to_unsound else []
    sound = f"positive_data_acceptance.expected-statuses = {to_sound}"
    return ["[[operations]]", f"include-operation-id = {operations}", "[operations.checks]", sound, *unsound]


async def tried(admin: httpx.AsyncClient, role: Role, secret: str, folder: Path) -> tuple[int | None, str]:
    settings = folder / "schemathesis.toml"
    settings.write_text(await configuration(admin, role))
    document = folder / "openapi.json"  # read by an admin: a node may not
    document.write_bytes((await admin.get("/openapi.json")).content)
    options = [
        *("--config-file", str(settings)),
        *("run", str(document), "--url", str(admin.base_url), "--header", f"Authorization: Bearer {secret}"),
        *("--checks", "all", "--exclude-operation-id", "follow_events"),
        *(*TRIED[role], "--workers", "1", "--no-color"),
    ]
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("st"),
        *options,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()
