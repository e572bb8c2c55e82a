"""The API keeps to its own document: schemathesis tries what the document allows, and what it does not.

Every check it has, over a real desk. The event stream is left out, since it has no end to wait for.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.integration.api.world import TOKEN, listening

from canoa import Canoa
from canoa.manager.hosting import hosting

FOR_S = 40
"""Of cases made at random; the fixed ones take some seconds before."""

# What the document cannot say: which arguments an action takes, which cursors are ours, which plans can run and how
# long a name may be. So a request that fits the document may still be refused there.
CONFIGURATION = """
[[operations]]
include-operation-id = ["submit", "submit_batch", "list_tasks", "list_dead", "register_plan", "rerun", "get_step"]
[operations.checks]
positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "422"]
"""

PLAN = {"plan": "thumbnails", "steps": {"resize": {"action": "shop.resize", "with": {"path": "$input.path"}}}}


@pytest.mark.timeout(180)
async def test_the_api_keeps_to_its_document_whatever_it_is_sent(tmp_path: Path) -> None:
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
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
        listening(app, hosted.desk) as client,
    ):
        await client.put("/api/v1/plans/thumbnails", json=PLAN)
        for _ in range(5):  # dead letters and routed tasks, to be found
            await client.post("/api/v1/tasks", json={"action": "shop.fail"})
            await client.post("/api/v1/tasks", json={"plan": "thumbnails", "input": {"path": "a.png"}})
        code, said = await tried(str(client.base_url), configuration)
        await app.aclose()

    assert code == 0, said
    generated = re.search(r"(\d+) generated", said)
    assert generated is not None, said
    assert int(generated[1]) > 500, said


async def tried(url: str, configuration: Path) -> tuple[int | None, str]:
    options = [
        *("--config-file", str(configuration)),
        *("run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}"),
        *("--checks", "all", "--exclude-operation-id", "follow_events"),
        *("--max-time", str(FOR_S), "--workers", "1", "--no-color"),
    ]
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("st"),
        *options,
        cwd=configuration.parent,
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
