"""`canoa init`: a small project that runs, and whose test passes."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from canoa.cli import output
from canoa.errors import SettingError

FILES: Final = {
    "pyproject.toml": "pyproject.toml.in",
    "{module}.py": "module.py.in",
    "test_{module}.py": "test_module.py.in",
    "README.md": "README.md.in",
    "canoa.toml": "canoa.toml.in",
    ".gitignore": "gitignore.in",
}


def init(
    folder: Annotated[Path, typer.Argument(help="Where to; made when it is not there.", show_default="here")] = Path(),
    name: Annotated[str, typer.Option(help="The app's name; otherwise the folder's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a small project: two actions, a test that passes, and what to do next. Nothing is overwritten."""
    with output.errors_explained(as_json=as_json):
        app = _app_name(name or folder.resolve().name)
        module = _module_name(app)
        files = {path.format(module=module): _filled(template, app, module) for path, template in FILES.items()}
        _write(folder, files)
    if as_json:
        output.data({"folder": str(folder), "app": app, "target": f"{module}:app", "files": list(files)})
    else:
        _say_next(folder, app, module, list(files))


def _app_name(text: str) -> str:
    """Small letters, digits and `_`: what a queue, a module and a person can all read."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    if not name or not name[0].isalpha() or len(name) > 60:
        raise SettingError(f"{text!r:.80} cannot name an app; give one that starts with a letter: --name shop")
    return name


def _module_name(app: str) -> str:
    """The app's own, unless importing it would find something else, or hide it from others."""
    is_taken = app in sys.stdlib_module_names or keyword.iskeyword(app) or app in ("canoa", "pytest")
    return f"{app}_app" if is_taken or app.startswith("test_") else app


def _filled(template: str, app: str, module: str) -> str:
    text = resources.files("canoa.cli").joinpath("templates", "project", template).read_text(encoding="utf-8")
    return Template(text).substitute(app=app, module=module, project=app.replace("_", "-"))


def _write(folder: Path, files: dict[str, str]) -> None:
    """All or nothing, as far as files that are there already are concerned."""
    present = [name for name in files if (folder / name).exists()]
    if present:
        raise SettingError(
            f"{', '.join(present)} in {folder.resolve()} would be overwritten; name an empty folder: canoa init shop"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as exc:
        raise SettingError(f"cannot write {exc.filename or folder}: {exc.strerror}; name another folder") from exc


def _say_next(folder: Path, app: str, module: str, names: list[str]) -> None:
    output.say(f"wrote {', '.join(names)}" + ("" if folder == Path() else f" into {folder}"))
    output.say("next:")
    if folder != Path():
        output.say(f"  cd {shlex.quote(str(folder))}")
    output.say(f"  {output.program()} up {module}:app")
    output.say(f'  {output.program()} call {app}.greet \'{{"name": "Ana"}}\'    # in another shell, in the same folder')
