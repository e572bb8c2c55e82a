"""`canoa config`: every setting with where it came from, every problem at once, and no secret ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "correct-horse"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """In a folder with settings in every kind of file, and a secret in some."""
    (tmp_path / ".env").write_text(f"CANOA_API_TOKEN={PASSWORD}\nCANOA_STORE_FILE=store-url\n")
    (tmp_path / "store-url").write_text(f"postgresql://canoa:{PASSWORD}@db/canoa\n")
    (tmp_path / "canoa.toml").write_text("heartbeat_s = 5\nsubmit_timeout_s = 7\n")
    (tmp_path / "pyproject.toml").write_text("[tool.canoa]\nheartbeat_s = 20\nmax_payload_bytes = 99\n")
    shell = Shell(tmp_path, folder=tmp_path, env={"CANOA_BROKER": f"amqp://shop:{PASSWORD}@host/"})
    yield shell
    shell.close()


def test_every_setting_is_shown_with_its_source_and_secrets_hidden(shell: Shell) -> None:
    viewed = shell.canoa("config", "view", "--json")

    assert (viewed.returncode, viewed.stderr) == (0, "")
    rows = {row.pop("name"): tuple(row.values()) for row in json.loads(viewed.stdout)}
    assert rows["broker"] == ("amqp://shop:***@host/", "environment", "CANOA_BROKER")
    assert rows["api_token"] == ("***", ".env", "CANOA_API_TOKEN")
    assert rows["store"] == ("postgresql://canoa:***@db/canoa", ".env", "CANOA_STORE_FILE")
    assert rows["heartbeat_s"] == (5, "canoa.toml", "heartbeat_s")
    assert rows["max_payload_bytes"] == (99, "pyproject.toml", "tool.canoa.max_payload_bytes")
    assert rows["tls_verify"] == (True, "default", "tls_verify")
    assert PASSWORD not in viewed.stdout


def test_people_get_a_table_and_no_colours_in_a_pipe(shell: Shell) -> None:
    viewed = shell.canoa("config", "view")

    assert (viewed.returncode, viewed.stderr) == (0, "")
    assert "amqp://shop:***@host/" in viewed.stdout
    assert "environment (CANOA_BROKER)" in viewed.stdout
    assert PASSWORD not in viewed.stdout
    assert "\x1b" not in viewed.stdout


def test_with_problems_the_rest_is_shown_and_the_problems_are_said(shell: Shell) -> None:
    viewed = shell.canoa("config", "view", CANOA_HEARTBEAT_S="soon")

    assert viewed.returncode == 1
    assert "submit_timeout_s" in viewed.stdout
    assert "error: CANOA_HEARTBEAT_S 'soon' cannot be used: Expected `int`" in viewed.stderr


def test_valid_settings_are_called_so(offline: Shell) -> None:
    validated = offline.canoa("config", "validate")

    assert (validated.returncode, validated.stderr) == (0, "")
    assert validated.stdout == "ok       settings  valid; from the defaults alone\n"


def test_every_problem_is_told_at_once_with_its_remedy_and_without_secrets(shell: Shell) -> None:
    (shell.folder / "canoa.toml").write_text(f"brokr = 'amqp://u:{PASSWORD}@host'\nheartbeat_s = 0\n")

    validated = shell.canoa("config", "validate", CANOA_MAX_PAYLOAD_BYTES="many", CANOA_APPI="x")

    assert (validated.returncode, validated.stderr) == (1, "")
    for said in (
        "canoa.toml sets 'brokr', which is no setting; did you mean broker?",
        "heartbeat_s in canoa.toml 0 cannot be used",
        "CANOA_MAX_PAYLOAD_BYTES 'many' cannot be used",
        "CANOA_APPI in the environment is no setting",
    ):
        assert said in validated.stdout
    assert PASSWORD not in validated.stdout


def test_the_same_as_json(shell: Shell) -> None:
    validated = shell.canoa("config", "validate", "--json", CANOA_API="nowhere", CANOA_STORE="sqlite:///a.db")

    assert validated.returncode == 1
    told = json.loads(validated.stdout)
    assert told["ok"] is False
    assert {(each["check"], each["verdict"]) for each in told["findings"]} == {("settings", "problem")}


def test_other_commands_refuse_wrong_settings_in_one_line(shell: Shell) -> None:
    (shell.folder / "canoa.toml").write_text("brokr = 1\nstor = 2\n")

    called = shell.canoa("call", "shop.resize")

    assert (called.returncode, called.stdout) == (2, "")
    assert "did you mean broker? (and 1 more; `canoa config validate` lists them)" in called.stderr
    assert "Traceback" not in called.stderr
