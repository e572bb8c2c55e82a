"""Each setting comes from the strongest source that has it, knows which one that was, and wrong ones name theirs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.pretty import pretty_repr

from canoa import Canoa
from canoa.errors import SettingError
from canoa.settings import Settings, read, survey
from canoa.vocabulary import Drop, Layer, Routing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PASSWORD = "correct-horse"
VARIABLE = "CANOA_SUBMIT_TIMEOUT_S"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every source names the time limit of a submit, each another one."""
    (tmp_path / ".env").write_text(f"{VARIABLE}=3\n")
    (tmp_path / "canoa.toml").write_text("submit_timeout_s = 4\n")
    (tmp_path / "pyproject.toml").write_text("[tool.canoa]\nsubmit_timeout_s = 5.0\n")
    return tmp_path


def problems_in(folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    return survey({}, environment or {}, folder=folder).problems


# --- Precedence and provenance ----------------------------------------------------------------------


def test_a_value_comes_from_the_strongest_source_that_has_it_and_says_which(folder: Path) -> None:
    def found(arguments: dict[str, float], environment: dict[str, str]) -> tuple[float, str, str]:
        sourced = survey(arguments, environment, folder=folder).sourced["submit_timeout_s"]
        return sourced.value, sourced.source, sourced.key

    assert found({"submit_timeout_s": 1.0}, {VARIABLE: "2"}) == (1.0, "argument", "submit_timeout_s")
    assert found({}, {VARIABLE: "2"}) == (2.0, "environment", VARIABLE)
    assert found({}, {}) == (3.0, ".env", VARIABLE)
    (folder / ".env").unlink()
    assert found({}, {}) == (4.0, "canoa.toml", "submit_timeout_s")
    (folder / "canoa.toml").unlink()
    assert found({}, {}) == (5.0, "pyproject.toml", "tool.canoa.submit_timeout_s")
    (folder / "pyproject.toml").unlink()
    assert found({}, {}) == (30.0, "default", "submit_timeout_s")


def test_an_empty_variable_counts_as_not_given(folder: Path) -> None:
    assert read({}, {VARIABLE: ""}, folder=folder).submit_timeout_s == 3.0


def test_every_setting_can_be_set_in_a_file_and_by_a_variable(tmp_path: Path) -> None:
    values = {field.name: _another(field.name, field.default) for field in msgspec.structs.fields(Settings)}
    environment = {f"CANOA_{name.upper()}": str(value) for name, value in values.items()}
    (tmp_path / "canoa.toml").write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()))

    assert read({}, environment, folder=tmp_path / "none") == Settings(**values)
    assert read({}, {}, folder=tmp_path) == Settings(**values)


def _another(name: str, value: Any) -> Any:
    match value:
        case bool():
            return not value
        case Layer():
            return Layer.EDGE
        case Routing():
            return Routing.LEARNED
        case Drop():
            return Drop.REFUSE
        case str() if name.startswith("link_budget"):
            return "10MB/day"
        case str():
            return "none" if ":" in value and "/" not in value else "other"  # a compression rule, or any text
    return value + 1


def test_an_app_reads_the_files_of_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    assert Canoa("shop").settings.submit_timeout_s == 3.0


def test_a_broker_named_later_leaves_the_other_settings_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    app = Canoa("shop", max_payload_bytes=10)

    app.use_broker("amqp://here")

    assert app.settings == Settings(broker="amqp://here", max_payload_bytes=10, submit_timeout_s=3.0)


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert read({}, {}, folder=tmp_path / "gone") == Settings()


# --- Wrong files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("canoa.toml", 'brokr = "x"', "canoa.toml sets 'brokr', which is no setting; did you mean broker?"),
        ("canoa.toml", "[tls]\nca = 1", "canoa.toml sets 'tls', which is no setting; "),
        ("canoa.toml", "colour = 1", "`canoa config view` lists those there are"),
        ("canoa.toml", "broker = ", "canoa.toml is not TOML: Invalid value"),
        ("canoa.toml", "heartbeat_s = '10'", "heartbeat_s in canoa.toml '10' cannot be used: Expected `int`"),
        ("pyproject.toml", "[tool.canoa]\nstores = ''", "did you mean tool.canoa.store?"),
        ("pyproject.toml", "[tool]\ncanoa = 1", "tool.canoa in pyproject.toml is no table; write [tool.canoa]"),
        (".env", "CANOA_BROKKER=x", ".env sets 'CANOA_BROKKER', which is no setting; did you mean CANOA_BROKER?"),
        (".env", "A=1\nCANOA_BROKER='x", ".env line 2 cannot be read; write CANOA_NAME=value, and close its quotes"),
        (".env", "CANOA_HEARTBEAT_S=soon", "CANOA_HEARTBEAT_S in .env 'soon' cannot be used: Expected `int`"),
        (".env", "CANOA_TLS_VERIFY=perhaps", "CANOA_TLS_VERIFY in .env 'perhaps' cannot be used: Expected `bool`"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_the_file_the_key_and_the_remedy(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)

    (problem,) = problems_in(tmp_path)

    assert said in problem
    with pytest.raises(SettingError):
        read({}, {}, folder=tmp_path)


@pytest.mark.parametrize("name", [".env", "canoa.toml", "pyproject.toml"])
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert f"{name} cannot be read: Is a directory" in problems_in(tmp_path)[0]

    (tmp_path / name).rmdir()
    (tmp_path / name).write_bytes(b"canoa \xff\xfe" + PASSWORD.encode())
    (problem,) = problems_in(tmp_path)
    assert f"{name} cannot be read: not UTF-8 text" in problem
    assert PASSWORD not in problem


def test_every_problem_is_found_at_once_and_the_first_is_raised(folder: Path) -> None:
    (folder / "canoa.toml").write_text("colour = 1\nshape = 2\n")

    assert len(problems_in(folder, {VARIABLE: "soon", "CANOA_HEARTBEAT_S": "-1"})) == 4
    with pytest.raises(SettingError, match=r"and 3 more; `canoa config validate` lists them"):
        read({}, {VARIABLE: "soon", "CANOA_HEARTBEAT_S": "-1"}, folder=folder)


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.black]\nline-length = 'a")
    (tmp_path / ".env").write_text("DATABASE_URL=postgres://x\nKEY='-----BEGIN\nnot closed\n\nCANOA_HEARTBEAT_S=7")

    assert read({}, {}, folder=tmp_path) == Settings(heartbeat_s=7)


def test_a_variable_in_the_environment_that_is_no_setting_is_no_problem(tmp_path: Path) -> None:
    assert problems_in(tmp_path, {"CANOA_SERVICE_HOST": "10.0.0.1"}) == []


# --- Secrets ----------------------------------------------------------------------------------------


def test_a_secret_can_come_from_a_file_named_by_a_variable(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"amqp://shop:{PASSWORD}@host/\n")

    for environment in ({"CANOA_BROKER_FILE": "secret"}, {"CANOA_BROKER_FILE": str(tmp_path / "secret")}):
        sourced = survey({}, environment, folder=tmp_path).sourced["broker"]
        assert (sourced.value, sourced.key) == (f"amqp://shop:{PASSWORD}@host/", "CANOA_BROKER_FILE")


def test_a_secret_file_is_read_only_when_no_stronger_source_names_the_value(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CANOA_BROKER_FILE=gone")

    assert read({}, {"CANOA_BROKER": "amqp://here"}, folder=tmp_path).broker == "amqp://here"


def test_secret_files_that_are_of_no_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(PASSWORD.encode() + b"\xff")

    def refused(file: str, **more: str) -> str:
        (problem,) = problems_in(tmp_path, {"CANOA_API_TOKEN_FILE": file, **more})
        return problem

    assert refused("gone") == "CANOA_API_TOKEN_FILE names 'gone', which cannot be read: No such file or directory"
    assert "which is empty; write the value into it" in refused("empty")
    assert PASSWORD not in refused("binary")
    assert "are both set; remove one of them" in refused("empty", CANOA_API_TOKEN="x")


def test_only_secrets_have_a_file_variable(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CANOA_HEARTBEAT_S_FILE=x")

    assert "did you mean CANOA_HEARTBEAT_S" in problems_in(tmp_path)[0]


@pytest.mark.parametrize("name", ["broker", "store", "api"])
def test_no_error_and_no_representation_shows_the_password_of_a_url(tmp_path: Path, name: str) -> None:
    url = f"amqp://shop:{PASSWORD}@host/"
    with pytest.raises(SettingError) as caught:
        read({name: [url]}, {}, folder=tmp_path)
    (tmp_path / "canoa.toml").write_text(f"{name} = ['{url}']\n{name}_url = '{url}'")
    found = survey({name: url}, {}, folder=tmp_path)

    for text in (str(caught.value), *found.problems, repr(found), pretty_repr(found), repr(read({name: url}, {}))):
        assert PASSWORD not in text
    assert found.sourced[name].shown == "amqp://shop:***@host/"


def test_a_token_is_shown_only_as_being_there() -> None:
    settings = read({"api_token": PASSWORD}, {})

    assert repr(settings) == "Settings(broker='memory://', api_token='***')"
    assert survey({}, {}).sourced["api_token"].shown == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"guest:{PASSWORD}@host", "guest:***@host"),
        (f"amqp:/guest:{PASSWORD}@host", "amqp:***@host"),
        (f"postgresql://host/db?user=a&password={PASSWORD}", "postgresql://host/db?user=a&password=***"),
        (f"postgresql://a@host/db?PASSWORD={PASSWORD}@x&b=1", "postgresql://a@host/db?PASSWORD=***&b=1"),
        (f"amqp://a:x://{PASSWORD}@host", "amqp:***@host"),
        ("amqps://host/vhost", "amqps://host/vhost"),
        ("amqps://user@host/vhost", "amqps://user@host/vhost"),
        ("sqlite:///.canoa/canoa.db", "sqlite:///.canoa/canoa.db"),
    ],
)
def test_a_url_is_shown_without_its_password_wherever_that_stands(url: str, shown: str) -> None:
    assert repr(Settings(broker=url)) == f"Settings(broker={shown!r})"


def test_reading_settings_leaves_the_environment_as_it_is(folder: Path) -> None:
    before = dict(os.environ)

    read({}, folder=folder)

    assert dict(os.environ) == before
